"""One line on every run folder for the overview: state, progress, time left, verdict. Damaged folders say so."""

from __future__ import annotations

import contextlib
import math
import statistics
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

from archloom.core.errors import ArchloomError, one_line
from archloom.core.files import refuse_special
from archloom.core.json_object import JsonObject, number
from archloom.core.leases import find_holder
from archloom.core.metrics import ACCURACY, METRICS, PERPLEXITY
from archloom.core.progress_file import Progress, progress_path
from archloom.core.score_names import rename_scores
from archloom.core.seeds import parse_seeds
from archloom.core.settings import Settings, read_toml
from archloom.dashboard.folders import Folder, Kind
from archloom.dashboard.growing_file import GrowingFile, parse_object

State = Literal["running", "finished", "interrupted", "starting", "damaged"]
STATES: tuple[State, ...] = get_args(State)

RECENT = 8  # records that say how long the next ones take


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What the overview shows of a run folder."""

    key: str
    kind: Kind
    state: State
    title: str
    parent: str | None = None
    done: int = 0
    total: int | None = None
    unit: str = "epoch"
    step: int | None = None  # of the epoch that runs, and
    steps: int | None = None  # how many steps it has
    doing: str = ""  # after the last epoch or trial: how the result is being derived
    seconds: float | None = None  # that a finished run took
    seconds_left: float | None = None
    score: float | None = None  # as people read it: an accuracy in percent, or a perplexity
    metric: str = ACCURACY.name  # what the score is
    verdict: str = ""
    problem: str = ""
    updated: float = 0.0  # seconds since 1970

    @property
    def merit(self) -> float:
        """Return a number that rises as the score gets better, for sorting."""
        if self.score is None:
            return -math.inf
        return self.score if METRICS[self.metric].higher_is_better else -self.score

    @property
    def score_text(self) -> str:
        """Return the score with its unit or name, or ''."""
        if self.score is None:
            return ""
        measure = METRICS[self.metric]
        return f"{self.score:,.2f} {measure.unit}" if measure.unit else f"{measure.name} {self.score:,.2f}"

    @property
    def milestone(self) -> str:
        """Return a text that changes when more than the progress does: a page is refreshed then."""
        words = zlib.crc32(f"{self.verdict}\n{self.problem}".encode())
        return f"{self.state} {self.done} {self.updated!r} {words:x}"

    @property
    def share(self) -> float | None:
        """Return the part that is done, from 0 to 1."""
        if self.state == "finished":
            return 1.0
        part = self.step / self.steps if self.step and self.steps else 0.0
        return min(1.0, (self.done + part) / self.total) if self.total else None


class RunSummarizer:
    """Summarizes the folder of one search or retraining; what did not change is not read again."""

    def __init__(self, path: Path) -> None:
        self._path, self._metrics = path, GrowingFile(path / "metrics.jsonl")
        self._count, self._recent = 0, list[bytes]()
        self._config: tuple[int, Settings] | None = None
        self._last: tuple[object, Summary] | None = None

    def summarize(self, folder: Folder) -> Summary:
        """Return the summary of the folder as it is now."""
        finished = bool(folder.names & {"architecture.json", "result.json"})
        running = not finished and find_holder(self._path) is not None
        files = [self._path / "config.toml"]  # a result is never changed in its place; a configuration may be edited
        if not finished:
            files += [self._path / "metrics.jsonl", progress_path(self._path)]
        signature = (folder, running, _sign(files))
        if self._last is None or self._last[0] != signature:
            self._last = signature, self._read(folder, running=running)
        return self._last[1]

    def _read(self, folder: Folder, *, running: bool) -> Summary:
        common: dict[str, Any] = {"key": folder.key, "parent": folder.parent, "updated": latest_change(self._path)}
        kind: Kind = "retraining" if "result.json" in folder.names else "search"
        title = folder.path.name
        if folder.problem:
            return Summary(kind=kind, state="damaged", title=title, problem=folder.problem, **common)
        try:
            result = _read_json(self._path / ("result.json" if kind == "retraining" else "architecture.json"))
            if result is not None:
                self._read_config()  # its page shows the settings: where they are damaged, the list says so, too
                return self._add_score_of_trials(_summarize_result(result, kind, common))
            if "config.toml" not in folder.names:
                return Summary(kind=kind, state="starting" if running else "interrupted", title=title, **common)
            return self._summarize_unfinished(self._read_config(), common, running=running)
        except (ArchloomError, KeyError, TypeError, ValueError, AttributeError) as error:
            return Summary(kind=kind, state="damaged", title=title, problem=one_line(error), **common)

    def _add_score_of_trials(self, summary: Summary) -> Summary:
        """Return the summary of a search by trials with the best score, which its result has only if a table has it."""
        if summary.kind != "search" or summary.score is not None:
            return summary
        self._count_records()
        last = parse_object(self._recent[-1]) if self._recent else None
        return replace(summary, **_latest_score(last, "search")) if last is not None and "trial" in last else summary

    def _read_config(self) -> Settings:
        path = self._path / "config.toml"
        changed = path.stat().st_mtime_ns
        if self._config is None or self._config[0] != changed:
            self._config = changed, read_toml(path)
        return self._config[1]

    def _summarize_unfinished(self, config: Settings, common: Mapping[str, Any], *, running: bool) -> Summary:
        self._count_records()
        kind: Kind = "retraining" if config.get("kind") == "retrain" else "search"
        recent = [value for line in self._recent if (value := parse_object(line)) is not None]
        trials = bool(recent) and "trial" in recent[-1]
        total = _count_planned(config, kind, trials=trials)
        progress = self._read_progress() if running else None
        return Summary(
            kind=kind,
            state="running" if running else "interrupted",
            title=describe_config(config, kind),
            done=self._count,
            total=total,
            unit="trial" if trials else "epoch",
            **_describe_progress(progress, self._count),
            seconds_left=_estimate_rest(progress, recent, total, self._count) if running else None,
            **(_latest_score(recent[-1], kind) if recent else {}),
            **common,
        )

    def _read_progress(self) -> Progress | None:
        """Return how far the run is since its last record; None where it does not say so, as older versions do not."""
        with contextlib.suppress(OSError, KeyError, TypeError, ValueError, OverflowError):
            refuse_special(progress_path(self._path))
            value = parse_object(progress_path(self._path).read_bytes())
            return None if value is None else Progress.from_json(value)
        return None

    def _count_records(self) -> None:
        growth = self._metrics.read()
        if growth.restarted:
            self._count, self._recent = 0, []
        self._count += len(growth.lines)
        self._recent = [*self._recent, *growth.lines][-RECENT:]


def _sign(files: Sequence[Path]) -> tuple[int, ...]:
    """Return numbers that change when one of the files does."""
    found: list[int] = []
    for path in files:
        try:
            state = path.stat()
            found += [state.st_mtime_ns, state.st_size]
        except OSError:
            found.append(0)
    return tuple(found)


def _describe_progress(progress: Progress | None, records: int) -> dict[str, Any]:
    """Return the fields of a summary that say how far the epoch that runs is."""
    if progress is None:
        return {}
    steps = progress.units_per_record
    within = {"step": progress.step_after(records), "steps": steps} if steps > 1 and not progress.doing else {}
    return {**within, "doing": progress.doing}


def _estimate_rest(
    progress: Progress | None, recent: Sequence[JsonObject], total: int | None, records: int
) -> float | None:
    """Return the seconds that the remaining steps take or, where only records are known, the remaining records."""
    if progress is not None and progress.seconds_left is not None:
        return progress.seconds_left
    seconds = [number(value.get("seconds")) + max(0.0, _or_zero(value.get("valid_seconds"))) for value in recent]
    known = [value for value in seconds if value == value]
    return statistics.mean(known) * max(0, total - records) if known and total else None


def _or_zero(value: object) -> float:
    found = number(value)
    return found if found == found else 0.0


def latest_change(path: Path) -> float:
    """Return when the folder or its metrics last changed."""
    times = []
    for one in (path, path / "metrics.jsonl"):
        try:
            times.append(one.stat().st_mtime)
        except OSError:
            continue
    return max(times, default=0.0)


def _read_json(path: Path) -> JsonObject | None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ArchloomError(f"{path.name} cannot be read: {error.strerror}") from error
    value = parse_object(data)
    if value is None:
        raise ArchloomError(f"{path.name} is damaged: it holds no JSON object")
    return value


def describe_config(config: Settings, kind: Kind) -> str:
    """Return the title of a run from its configuration."""
    name = {section: str(dict(config.get(section) or {}).get("name", "?")) for section in ("space", "strategy", "data")}
    if kind == "retraining":
        return f"{name['space']} trained on {name['data']}, recipe {config.get('recipe')}, seed {config.get('seed')}"
    return f"{name['strategy']} on {name['space']}, {name['data']}, seed {config.get('seed')}"


def _count_planned(config: Settings, kind: Kind, *, trials: bool) -> int | None:
    section, name = ("training", "epochs") if kind == "retraining" else ("search", "trials" if trials else "epochs")
    value = dict(config.get(section) or {}).get(name)
    return value if isinstance(value, int) and value > 0 else None


def _latest_score(record: JsonObject, kind: Kind) -> dict[str, Any]:
    """Return how good the run is now, and by which metric."""
    record = rename_scores(record)
    entry = record.get("table_entry", record.get("standing"))
    if kind == "search" and isinstance(entry, Mapping):
        return {"score": _known(entry.get("test"))}
    if kind == "retraining":
        percent = number(record.get("ema_valid_score", record.get("valid_score")))
    elif "trial" in record:
        percent = number(record.get("best"))
    else:
        percent = 100 * number(record.get("derived_score"))
    return _measure(percent / 100, record)


def _measure(score: float, described: JsonObject) -> dict[str, Any]:
    """Return a score from 0 to 1 as people read it, and what it is, by the metric that a record or a result names."""
    metric = METRICS.get(str(described.get("metric")), ACCURACY)
    return {"score": _known(metric.to_value(score)), "metric": metric.name}


def _known(value: object) -> float | None:
    found = number(value)
    return found if math.isfinite(found) else None


def _summarize_result(result: JsonObject, kind: Kind, common: Mapping[str, Any]) -> Summary:
    run = result.get("run") or {}
    records = int(run.get("records", 0))
    space = dict(result["space"]).get("name")
    if kind == "retraining":
        title = f"{space} trained on {result['data']}, recipe {result['recipe']}, seed {result['seed']}"
        described = _summarize_evaluation(result.get("test") or result.get("valid") or {})
    else:
        title = f"{result['strategy']} on {space}, {result['data']}, seed {result['seed']}"
        entry = result.get("table_entry", result.get("standing")) or {}
        score = (
            {"score": _known(entry.get("test"))}
            if entry
            else _measure(number(rename_scores(result).get("shared_score")), result)
        )
        described = {**score, "verdict": str(result["verdict"])}
    return Summary(
        kind=kind,
        state="finished",
        title=title,
        done=records,
        total=records,
        seconds=_known(run.get("seconds")),
        **described,
        **common,
    )


def _summarize_evaluation(evaluation: JsonObject) -> dict[str, Any]:
    """Return score and verdict of a retraining: perplexity of a text, or accuracy on images."""
    if "words" in evaluation:
        perplexity = math.exp(number(evaluation["loss"]))
        verdict = f"perplexity {perplexity:,.2f} on {int(evaluation['words']):,} words"
        return {"score": _known(perplexity), "metric": PERPLEXITY.name, "verdict": verdict}
    score = _known(evaluation.get("top1"))
    return {
        "score": score,
        "verdict": "" if score is None else f"{score:.2f} % of {int(evaluation['images']):,} images",
    }


# --- comparisons and pipelines


@lru_cache(maxsize=1000)
def summarize_jobs(folder: Folder, members: tuple[Summary, ...], changed: float, *, running: bool) -> Summary:
    """Return the summary of a comparison or a pipeline from its file and from the runs in it.

    `changed` is the time of the last change of the folder: nothing is read again where all of these are the same.
    """
    kind: Kind = "comparison" if folder.mark == "comparison" else "pipeline"
    updated = max([changed, *(member.updated for member in members)])
    common: dict[str, Any] = {"key": folder.key, "kind": kind, "parent": folder.parent, "updated": updated}
    if folder.problem:
        return Summary(state="damaged", title=folder.path.name, problem=folder.problem, **common)
    try:
        settings = read_toml(folder.path / f"{kind}.toml")
        planned = count_jobs(settings, kind)
        done = sum(member.state == "finished" for member in members if _counts(member))
        result = _read_json(folder.path / f"{kind}.json") if f"{kind}.json" in folder.names else None
        complete = not running and result is not None and (done >= planned or bool(result.get("complete")))
        state: State = "finished" if complete else "running" if running else "interrupted"
        return Summary(
            state=state,
            title=str(settings.get("title", folder.path.name)),
            done=done,
            total=planned,
            unit="run",
            seconds_left=_estimate_left(members, planned) if running else None,
            verdict=_list_verdicts(result, kind) if complete and result is not None else "",
            **common,
        )
    except (ArchloomError, KeyError, TypeError, ValueError, AttributeError) as error:
        return Summary(state="damaged", title=folder.path.name, problem=one_line(error), **common)


def _estimate_left(members: tuple[Summary, ...], planned: int) -> float | None:
    """Return the time that the missing runs take, at as many at once as run now, if they are like those that ended."""
    ended = [member.seconds for member in members if member.state == "finished" and member.seconds is not None]
    at_once = sum(member.state == "running" for member in members)
    return statistics.mean(ended) * max(0, planned - len(ended)) / max(1, at_once) if ended else None


def _counts(member: Summary) -> bool:
    """Return whether a run is one of those that were planned: short trainings only pick a search."""
    return "/picking/" not in member.key


def count_jobs(settings: Settings, kind: Kind) -> int:
    """Return how many runs a comparison or a pipeline asks for."""
    if kind == "comparison":
        default = settings.get("seeds", "0-4")
        return sum(len(parse_seeds(entry.get("seeds", default))) for entry in settings["entry"].values())
    searches, retrainings = int(settings.get("searches", 1)), int(settings.get("retrainings", 1))
    return searches + retrainings * (1 if settings.get("protocol") == "best_of_searches" else searches)


def _list_verdicts(result: JsonObject, kind: Kind) -> str:
    if kind == "comparison":
        pairs = [(entry["entry"], entry.get("verdict")) for entry in result["entries"]]
        return "; ".join(f"{name}: {verdict}" for name, verdict in pairs if verdict)
    tests = [model["test"] for model in result.get("trained", ()) if model.get("test") is not None]
    return f"test accuracy {statistics.mean(tests):.2f} % over {len(tests)} retrainings" if tests else ""
