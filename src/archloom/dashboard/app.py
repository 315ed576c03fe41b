"""The web application: addresses and their answers. Every answer is made from what the index knows."""

from __future__ import annotations

import contextlib
import datetime
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote, urlencode

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from archloom.core.errors import ArchloomError, one_line
from archloom.dashboard.events import OVER, follow_for_page, follow_overview, follow_run, to_json
from archloom.dashboard.folders import Folder
from archloom.dashboard.guard import Guard
from archloom.dashboard.index import Index
from archloom.dashboard.page import Page, page_address
from archloom.dashboard.summaries import Summary
from archloom.dashboard.thumbnails import draw_small
from archloom.reports.pictures import Picture
from archloom.reports.tables import to_csv

if TYPE_CHECKING:  # they import torch, which the overview does not need
    from archloom.dashboard.pages import Pages

STATIC = {  # all files that are served as they are
    "report.css": ("archloom.reports", "text/css"),
    "serve.css": ("archloom.dashboard", "text/css"),
    "serve.js": ("archloom.dashboard", "text/javascript"),
    "icon.svg": ("archloom.dashboard", "image/svg+xml"),
}
MOST_ROWS_AT_ONCE = 200
Made = TypeVar("Made")
READ_ERRORS = (ArchloomError, OSError, KeyError, TypeError, ValueError, AttributeError, IndexError)


def make_app(roots: Sequence[Path], *, hosts: frozenset[str] | None, token: str | None = None) -> Guard:
    """Return the application that serves these folders."""
    return Guard(Dashboard(Index(roots)).app, hosts, token)


class Dashboard:
    """The pages of all runs below some folders."""

    def __init__(self, index: Index) -> None:
        self._index, self._lock = index, threading.Lock()
        self._drawing = threading.Lock()  # one figure at a time: matplotlib shares its state
        self._made: OrderedDict[str, Page] = OrderedDict()
        self._pages: Pages | None = None
        self.app = Starlette(
            routes=[
                Route("/", self._overview),
                Route("/rows", self._rows),
                Route("/api/runs", self._list_runs),
                Route("/overlay", self._overlay),
                Route("/page/{key:path}", self._run),
                Route("/state/{key:path}", self._state),
                Route("/cell/{key:path}", self._cell),
                Route("/svg/{name}/{key:path}", self._svg),
                Route("/csv/{name}/{key:path}", self._csv),
                Route("/thumbnail/{key:path}", self._thumbnail),
                Route("/file/{key:path}", self._file),
                Route("/events", self._follow_overview),
                Route("/events/{key:path}", self._follow_run),
                Route("/static/{name}", self._static),
            ]
        )

    @property
    def pages(self) -> Pages:
        """Return what makes the pages of runs, imported when the first one is asked for."""
        with self._lock:
            if self._pages is None:
                from archloom.dashboard.pages import Pages

                self._pages = Pages(self._index)
            return self._pages

    # --- the overview

    def _overview(self, request: Request) -> Response:
        summaries = sorted(self._index.refresh().values(), key=lambda one: (-one.updated, one.key))
        roots = ", ".join(map(str, self._index.tree.roots))
        context = {"title": "Runs", "subtitle": roots, "roots": roots, "rows_of_runs": list(map(_with_time, summaries))}
        return HTMLResponse(Page("overview.html", context).render(kind="overview", live=True, events="/events"))

    def _rows(self, request: Request) -> Response:
        keys, summaries = request.query_params.getlist("run")[:MOST_ROWS_AT_ONCE], self._index.refresh()
        shown = [_with_time(summaries[key]) for key in keys if key in summaries]
        return HTMLResponse(Page("rows_only.html", {"rows_of_runs": shown}).render())

    def _list_runs(self, request: Request) -> Response:
        return JSONResponse([to_json(summary) for summary in self._index.refresh().values()])

    def _thumbnail(self, request: Request) -> Response:
        found = self._find(request)
        if found is None or found[0].problem:
            return _missing()
        folder, summary = found
        return _svg(draw_small(folder.path, (folder.changed, summary.done)))

    # --- one run

    def _run(self, request: Request) -> Response:
        found = self._find(request)
        if found is None:
            return _missing()
        folder, summary = found
        live = summary.state not in OVER
        more = {
            "key": folder.key,
            "kind": summary.kind,
            "run": summary,
            "live": live,
            "events": f"/events/{quote(folder.key)}?page=yes" if live else "",
            "crumbs": [(folder.parent, page_address(folder.parent))] if folder.parent else [],
        }
        return HTMLResponse(self._make_page(folder, summary).render(**more))

    def _state(self, request: Request) -> Response:
        """Return the part of a page that changes within an epoch: state, progress and time left."""
        found = self._find(request)
        return _missing() if found is None else HTMLResponse(_render_state(found[1]))

    def _make_page(self, folder: Folder, summary: Summary) -> Page:
        """Return the page of a folder; of a damaged one, what is wrong with it."""
        if summary.state in ("damaged", "starting"):
            return _damaged(summary)
        try:
            page = self.pages.make(folder, summary)
        except READ_ERRORS as error:
            return _damaged(summary, one_line(error))
        return self._keep(folder.key, page)

    def _keep(self, name: str, page: Page) -> Page:
        """Return the page that was made before if nothing changed: its pictures are drawn already."""
        with self._lock:
            before = self._made.pop(name, None)
            kept = before if before is not None and before.version == page.version else page
            self._made[name] = kept
            while len(self._made) > 24:
                self._made.popitem(last=False)
            return kept

    def _cell(self, request: Request) -> Response:
        found = self._find(request)
        if found is None or found[1].kind != "search":
            return _missing()
        moment = self._try(lambda: self.pages.show_moment(*found, _read_place(request)))
        return _missing() if moment is None else JSONResponse(moment)

    def _svg(self, request: Request) -> Response:
        picture = self._find_picture(request)
        if picture is None:
            return _missing()
        with self._drawing:
            is_narrow = "narrow" in request.query_params
            text = self._try(lambda: picture.narrow if is_narrow else picture.svg)
        return _missing() if not text else _svg(text)

    def _csv(self, request: Request) -> Response:
        picture = self._find_picture(request)
        if picture is None:
            return _missing()
        text = self._try(lambda: to_csv(picture.table))
        return _missing() if text is None else Response(text, media_type="text/csv")

    def _find_picture(self, request: Request) -> Picture | None:
        name, key = request.path_params["name"], request.path_params["key"]
        if not key:
            page = self._make_overlay(request)
            return None if page is None else page.pictures.get(name)
        found = self._find(request)
        if found is None:
            return None
        if name == "cell" and found[1].kind == "search":
            return self._try(lambda: self.pages.picture_moment(*found, _read_place(request)))
        return self._make_page(*found).pictures.get(name)

    def _file(self, request: Request) -> Response:
        """Send a model or an export that the page of a retraining lists."""
        found, name = self._find(request), request.query_params.get("name", "")
        path = None if found is None else self._try(lambda: self.pages.find_file(found[0], name))
        if path is None or not self._index.tree.holds(path):
            return _missing()
        return FileResponse(path, filename=path.name, media_type="application/octet-stream")

    # --- several runs

    def _overlay(self, request: Request) -> Response:
        page = self._make_overlay(request)
        if page is None:
            return HTMLResponse(_damaged(None, "Tick two or more runs that can be read.").render(live=False), 404)
        query = urlencode([("run", key) for key in request.query_params.getlist("run")])
        return HTMLResponse(page.render(kind="overlay", live=False, query=f"?{query}"))

    def _make_overlay(self, request: Request) -> Page | None:
        keys = list(dict.fromkeys(request.query_params.getlist("run")))
        found = [one for key in keys if (one := self._index.find(key)) is not None]
        page = self._try(lambda: self.pages.make_overlay(found))
        return None if page is None else self._keep("+".join(keys), page)

    # --- events and files

    async def _follow_overview(self, request: Request) -> Response:
        return _stream(follow_overview(self._index))

    async def _follow_run(self, request: Request) -> Response:
        found = self._find(request)
        if found is None:
            return _missing()
        if "page" in request.query_params:
            return _stream(follow_for_page(self._index, found[0], _render_state))
        after = request.headers.get("last-event-id", request.query_params.get("after", "0"))
        return _stream(follow_run(self._index, found[0], after=int(after) if after.isdecimal() else None))

    def _static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in STATIC:
            return _missing()
        package, kind = STATIC[name]
        text = files(package).joinpath(name).read_text(encoding="utf-8")
        return Response(text, media_type=kind, headers={"Cache-Control": "max-age=60"})

    # --- pieces

    def _find(self, request: Request) -> tuple[Folder, Summary] | None:
        return self._index.find(request.path_params["key"])

    def _try(self, make: Callable[[], Made]) -> Made | None:
        """Return what `make` returns; None where a file cannot be read: a damaged folder never stops the page."""
        with contextlib.suppress(*READ_ERRORS):
            return make()
        return None


def _damaged(summary: Summary | None, problem: str = "") -> Page:
    title = "Compare" if summary is None else summary.title
    is_starting = summary is not None and summary.state == "starting"
    said = problem or ("" if summary is None else summary.problem)
    context: dict[str, object] = {
        "title": title,
        "problem": said,
        "starting": is_starting,
        "key": "" if summary is None else summary.key,
    }
    return Page("damaged.html", context)


def _render_state(summary: Summary) -> str:
    return Page("state.html", {"run": summary}).render()


def _read_place(request: Request) -> int | None:
    text = request.query_params.get("place", "")
    return int(text) if text.isdecimal() and len(text) < 10 else None


def _with_time(summary: Summary) -> tuple[Summary, str]:
    moment = datetime.datetime.fromtimestamp(summary.updated).astimezone()
    return summary, moment.isoformat(timespec="minutes")


def _svg(text: str) -> Response:
    namespace = 'xmlns="http://www.w3.org/2000/svg"'
    whole = text if namespace in text.split(">", 1)[0] else text.replace("<svg ", f"<svg {namespace} ", 1)
    return Response(whole, media_type="image/svg+xml")


def _stream(events: object) -> Response:
    return StreamingResponse(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})  # type: ignore[arg-type]


def _missing() -> Response:
    return PlainTextResponse("there is nothing here\n", 404)
