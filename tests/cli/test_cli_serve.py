"""`archloom serve` as users start it, and `archloom search --serve`."""

import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from archloom.cli.main import run

pytest.importorskip("uvicorn", reason="needs the extra web")
STORED = Path(__file__).parents[1] / "data_files" / "first_edition"


@pytest.fixture
def start(tmp_path):
    started = []

    def start_server(*arguments):
        shutil.copytree(STORED / "search_gdas", tmp_path / "runs/first", dirs_exist_ok=True)
        command = [sys.executable, "-m", "archloom", "serve", *arguments]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
        started.append(server)
        return server, server.stdout.readline().strip()

    yield start_server
    for server in started:
        server.kill()
        server.communicate()


def read(address):
    with urllib.request.urlopen(address, timeout=30) as answer:
        return answer.read().decode()


def test_it_serves_runs_of_this_folder_on_this_machine_alone(start):
    server, address = start("--port", "0")
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", address)
    assert "runs/first" in read(address)
    server.send_signal(signal.SIGINT)
    assert server.wait(20) in (0, 130)
    assert "Traceback" not in server.stderr.read()


def test_searches_go_before_the_server(start):
    server, _ = start("--port", "0")
    assert os.getpriority(os.PRIO_PROCESS, server.pid) >= os.getpriority(os.PRIO_PROCESS, 0) + 10


def test_another_address_needs_the_token(start):
    _, link = start("--host", "0.0.0.0", "--port", "0")
    port, token = re.fullmatch(r"http://[^:]+:(\d+)/\?token=([\w-]{32})", link).groups()
    with pytest.raises(urllib.error.HTTPError, match="401"):
        read(f"http://127.0.0.1:{port}/")
    request = urllib.request.Request(f"http://127.0.0.1:{port}/", headers={"Cookie": f"archloom-token={token}"})
    assert "runs/first" in read(request)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["serve", "nowhere"], "error: no folder nowhere; archloom search makes runs/"),
        (["serve", ".", "--host", "300.1.1.1"], "error: cannot listen on 300.1.1.1"),
    ],
)
def test_bad_input_is_one_line(tmp_path, monkeypatch, capsys, arguments, line):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        run(arguments)
    printed = capsys.readouterr().err
    assert printed.startswith(line) and len(printed.strip().splitlines()) <= 2


def test_a_taken_port_is_an_error_only_if_it_was_asked_for(tmp_path, monkeypatch, capsys):
    from archloom.core.errors import ArchloomError
    from archloom.dashboard import server

    taken = server.open_socket("127.0.0.1", 0)
    port = taken.getsockname()[1]
    monkeypatch.setattr(server, "PORT", port)
    with server.open_socket("127.0.0.1", None) as other:
        assert other.getsockname()[1] != port
    with pytest.raises(ArchloomError, match=f"cannot listen on 127.0.0.1 port {port}"):
        server.open_socket("127.0.0.1", port)
    taken.close()


def test_a_search_is_served_while_it_runs_and_the_server_ends_with_it(tmp_path):
    command = [sys.executable, "-m", "archloom", "search", "--space", "nb201_mini", "--strategy", "random_search",
               "--trials", "3", "--serve", "--out", "runs/here"]  # fmt: skip
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=300, env={**os.environ, "COLUMNS": "200"}
    )
    assert done.returncode == 0, done.stderr
    address = re.search(r"live page: (http://127\.0\.0\.1:\d+/)page/runs/here", done.stderr)
    assert address, done.stderr
    with pytest.raises(urllib.error.URLError):
        read(address[1])
