"""The form of a spider, made from its signature."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.cases import for_each
from weft.operations.versions import ArgumentDocument, SpiderDocument
from weft.web.pages.spiders import ArgumentField, argument_field, run_body, typed_values, values_of_run


def argument(name: str = "pages", default: str | None = "3", annotation: str = "", doc: str = "") -> ArgumentDocument:
    return ArgumentDocument(name=name, default=default, annotation=annotation, doc=doc)


@for_each(
    ("annotation", "kind", "step"),
    [
        ("int", "number", "1"),
        ("float", "number", "any"),
        ("int | None", "number", "1"),
        ("Optional[float]", "number", "any"),
        ("'int'", "number", "1"),
        ("datetime.date", "date", "any"),
        ("str", "text", "any"),
        ("", "text", "any"),
        ("list[str]", "text", "any"),
        ("bool", "choice", "any"),
        ("Literal['a', 'b']", "choice", "any"),
        ("typing.Literal[1, 2]", "choice", "any"),
        ("Literal[Colour.RED]", "text", "any"),
    ],
)
def test_the_annotation_says_what_kind_of_field_it_is(annotation: str, kind: str, step: str) -> None:
    field = argument_field(argument(annotation=annotation))
    assert (field.type, field.step) == (kind, step)


def test_choices_are_those_of_the_annotation() -> None:
    assert list(argument_field(argument(annotation="Literal['de', 'fr'] | None")).choices) == ["de", "fr"]
    assert list(argument_field(argument(annotation="typing.Literal[1, True]")).choices) == ["1", "true"]
    assert list(argument_field(argument(annotation="bool")).choices) == ["true", "false"]


@pytest.mark.parametrize(
    ("default", "shown", "required"),
    [
        ("'de'", "de", False),
        ("None", "", False),
        ("3", "3", False),
        (None, "", True),
        ("<object at 0x7>", "<object at 0x7>", False),
    ],
)
def test_a_default_is_shown_as_somebody_would_type_it(default: str | None, shown: str, required: bool) -> None:
    field = argument_field(argument(default=default))
    assert (field.default, field.required) == (shown, required)


def fields() -> list[ArgumentField]:
    return [argument_field(argument("country", None)), argument_field(argument("pages", "3", "int"))]


def test_a_run_is_made_from_what_was_typed_and_nothing_else() -> None:
    form = {"arg.country": "fr", "arg.pages": " ", "more": "a=1\n\nb = x=y\n", "settings": "DOWNLOAD_DELAY=1"}
    form |= {"tags": "heavy, slow", "priority": "5", "version": "1.0", "timeout_seconds": "1.5", "resumable": "1"}
    body, errors = run_body("shop", "prices", fields(), form)
    assert errors == {}
    assert body == {
        "project": "shop",
        "kind": "spider",
        "name": "prices",
        "spec": {
            "spider": "prices",
            "args": {"country": "fr", "a": "1", "b": "x=y"},
            "settings": {"DOWNLOAD_DELAY": "1"},
            "version": "1.0",
            "resumable": True,
        },
        "priority": 5,
        "timeout_seconds": 1.5,
        "tags": ["heavy", "slow"],
    }


@for_each(
    ("form", "field"),
    [
        ({}, "arg.country"),
        ({"arg.country": "fr", "arg.pages": "many"}, "arg.pages"),
        ({"arg.country": "fr", "arg.pages": "1.5"}, "arg.pages"),
        ({"arg.country": "fr", "more": "a"}, "more"),
        ({"arg.country": "fr", "settings": "=1"}, "settings"),
        ({"arg.country": "fr", "priority": "high"}, "priority"),
        ({"arg.country": "fr", "timeout_seconds": "soon"}, "timeout_seconds"),
    ],
)
def test_what_cannot_be_is_told_by_field(form: dict[str, str], field: str) -> None:
    assert list(run_body("shop", "prices", fields(), form)[1]) == [field]


def test_what_a_run_was_given_stands_in_the_fields_again() -> None:
    spec = {"args": {"country": "fr", "pages": 7, "odd": ["x"]}, "settings": {"A": 1}}
    typed = typed_values(fields(), spec)
    assert typed == {"arg.country": "fr", "arg.pages": "7", "more": 'odd=["x"]', "settings": "A=1"}
    body, errors = run_body("shop", "prices", fields(), typed)
    assert (errors, body["spec"]["args"]) == ({}, {"country": "fr", "pages": "7", "odd": '["x"]'})


def test_lines_of_a_docstring_that_tell_of_arguments_are_not_told_twice() -> None:
    told = "country: two letters\n- pages (int): how many\n:param str other: a text"
    doc = f"Prices.\n\nAll of them: really.\n\n{told}\n\nEnd."
    arguments = [argument("country"), argument("pages"), argument("other")]
    spider = SpiderDocument(name="prices", doc=doc, arguments=arguments, takes_more=True)
    assert values_of_run(spider) == "Prices.\n\nAll of them: really.\n\nEnd."
    assert values_of_run(replace(spider, arguments=[])) == doc
