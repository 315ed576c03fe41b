import pytest

pytest.importorskip("starlette", reason="needs the extra web")
testclient = pytest.importorskip("starlette.testclient", reason="needs httpx")

from starlette.responses import PlainTextResponse  # noqa: E402

from archloom.dashboard.guard import Guard, is_loopback, list_hosts  # noqa: E402

LOCAL = "http://127.0.0.1:8421"


def client(host="127.0.0.1", token=None, base=LOCAL):
    guard = Guard(PlainTextResponse("page"), list_hosts(host), token)
    return testclient.TestClient(guard, base_url=base, follow_redirects=False)


@pytest.mark.parametrize("method", ["post", "put", "delete", "patch", "options"])
def test_pages_can_only_be_read(method):
    assert getattr(client(), method)("/").status_code == 405
    assert client().get("/").text == "page"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "evil.example:8421", "[::2]", ""])
def test_other_names_of_this_address_are_refused(host):
    assert client().get("/", headers={"Host": host}).status_code == 421


@pytest.mark.parametrize("host", ["127.0.0.1:8421", "localhost:8421", "[::1]:8421", "localhost"])
def test_names_of_this_machine_are_known(host):
    assert client().get("/", headers={"Host": host}).status_code == 200


def test_requests_of_other_sites_are_refused():
    assert client().get("/", headers={"Origin": "http://evil.example"}).status_code == 403
    assert client().get("/", headers={"Origin": "null"}).status_code == 403
    assert client().get("/", headers={"Origin": "http://127.0.0.1:9999"}).status_code == 403
    assert client().get("/", headers={"Origin": LOCAL}).status_code == 200


def test_every_answer_has_strict_headers():
    for answer in (client().get("/"), client().get("/", headers={"Host": "evil.example"})):
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"


def test_a_token_is_asked_for_and_leaves_the_address():
    asked = client("0.0.0.0", "secret", "http://192.168.0.7:8421")
    assert asked.get("/page/a").status_code == 401
    assert asked.get("/page/a?token=wrong").status_code == 401
    assert asked.get("/", headers={"Cookie": "archloom-token=wrong"}).status_code == 401
    answer = asked.get("/overlay?token=secret&run=1&run=2")
    assert (answer.status_code, answer.headers["location"]) == (303, "/overlay?run=1&run=2")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie
    assert asked.get("/page/a").text == "page"  # with the cookie


def test_a_server_on_all_addresses_knows_addresses_and_no_foreign_names():
    asked = client("0.0.0.0", None, "http://192.168.0.7:8421")
    assert asked.get("/").status_code == 200
    assert asked.get("/", headers={"Host": "evil.example"}).status_code == 421


def test_only_addresses_of_this_machine_are_loopback():
    assert [is_loopback(host) for host in ("127.0.0.1", "localhost", "::1", "127.8.9.1")] == [True] * 4
    assert [is_loopback(host) for host in ("0.0.0.0", "192.168.0.7", "::", "example.org")] == [False] * 4
