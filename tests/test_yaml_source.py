"""YAML is read as a person means it, every value knows its place, and nothing in a file can hurt the reader."""

import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from falsim.yaml_source import Document, Problem, SourceError, compose_yaml, format_path, load_yaml


def problems_of(text: str) -> list[str]:
    with pytest.raises(SourceError) as caught:
        load_yaml(text, "f.yaml")
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("1e9", 1e9),
        ("5e-6", 5e-6),
        (".5", 0.5),
        ("010", 10),
        ("0x10", 16),
        ("0o17", 15),
        ("1_000", 1000),
        ("-3", -3),
        ("12:30", "12:30"),
        ("1:2:3", "1:2:3"),
        ("2024-01-02", "2024-01-02"),
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("No", "No"),
        ("y", "y"),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("'1e9'", "1e9"),
        ('"on"', "on"),
        ("!!str 12", "12"),
        ("! 12", "12"),
        ("!!int 010", 10),
        ("1f1b", "1f1b"),
        ("80 GiB", "80 GiB"),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("=", "="),
    ],
)
def test_a_scalar_means_what_its_writer_meant(written: str, meant: Any) -> None:
    data = load_yaml(f"key: {written}\n", "f.yaml").data
    assert isinstance(data, dict)
    assert data["key"] == meant
    assert type(data["key"]) is type(meant)


def test_an_integer_of_five_thousand_digits_is_infinite_not_a_traceback() -> None:
    assert load_yaml("a: " + "9" * 5000, "f.yaml").data == {"a": math.inf}


def test_keys_are_text_even_when_they_look_like_values() -> None:
    assert load_yaml("on: 1\n12: 2\nnull: 3\n", "f.yaml").data == {"on": 1, "12": 2, "null": 3}


@pytest.fixture
def document() -> Document:
    return load_yaml("name: x\ncluster:\n  gpu: {preset: a, memory: 1 GB}\n  list: [1, [2, 3]]\n", "f.yaml")


@pytest.mark.parametrize(
    ("path", "where"),
    [
        (("name",), (1, 7)),
        (("cluster", "gpu"), (3, 8)),
        (("cluster", "gpu", "memory"), (3, 28)),
        (("cluster", "list", 1, 0), (4, 14)),
        (("cluster", "nodes"), (2, 1)),
        (("cluster", "gpu", "nope", "deeper"), (3, 3)),
        (("name", "below"), (1, 7)),
        (("nowhere",), (1, 1)),
    ],
)
def test_a_path_has_the_place_of_its_value_or_of_its_nearest_parent(
    document: Document, path: tuple[str | int, ...], where: tuple[int, int]
) -> None:
    assert document.position(path) == where


def test_a_key_has_a_place_of_its_own(document: Document) -> None:
    assert document.key_position(("cluster", "gpu", "memory")) == (3, 20)


def test_all_duplicate_keys_are_reported_with_the_line_of_the_first() -> None:
    assert problems_of("a: 1\nb:\n  c: 1\n  c: 2\na: 3\n") == [
        "f.yaml:4:3: error: b.c: duplicate key (the first is on line 3; keep one)",
        "f.yaml:5:1: error: a: duplicate key (the first is on line 1; keep one)",
    ]


def test_aliases_and_merge_keys_work_and_own_keys_win() -> None:
    text = "base: &b {x: 1, y: 2}\none: *b\ntwo: {<<: *b, y: 3}\nthree:\n  <<: [{x: 7}, *b]\n"
    assert load_yaml(text, "f.yaml").data == {
        "base": {"x": 1, "y": 2},
        "one": {"x": 1, "y": 2},
        "two": {"x": 1, "y": 3},
        "three": {"x": 7, "y": 2},
    }


def test_an_alias_bomb_is_refused_where_it_grows() -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [
        f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    ]
    [problem] = problems_of("\n".join(lines))
    assert "more than 20,000 values once aliases are expanded" in problem
    assert problem.startswith("f.yaml:5:")


def test_the_count_of_values_includes_aliases_within_aliases() -> None:
    assert load_yaml("a: &a [1, 2]\nb: &b [*a, *a]\nc: [*b, *b]\n", "f.yaml").data == {
        "a": [1, 2],
        "b": [[1, 2], [1, 2]],
        "c": [[[1, 2], [1, 2]], [[1, 2], [1, 2]]],
    }


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("x: " + "[" * 60 + "]" * 60, "1:54", "nested deeper than 50 levels"),
        ("a: &a [*a]", "1:8", "inside its own anchor"),
        ("a: *b", "1:4", "has no anchor &b"),
        ("a:\n\t- b", "2:1", "indent with spaces"),
        ("a: b: c", "1:5", "a second ':'"),
        ("ok: 1\nä: \x01", "2:4", "U+0001"),
        ("a: 1\n---\nb: 2", "2:1", "a second document"),
        ("? [a]\n: b", "1:3", "a key must be a plain name"),
        ("a: !!python/object/apply:os.system [ls]", "1:4", "tag !!python/object/apply:os.system"),
        ("<<: 3\n", "1:1", "merges mappings only"),
        ("a: [1, 2\n", "2:1", "not valid YAML"),
        ("a: " + "x" * 1_000_001, "1:1", "larger than 1,000,000 bytes"),
    ],
)
def test_bad_yaml_is_one_clear_error_at_its_place(text: str, place: str, message: str) -> None:
    [problem] = problems_of(text)
    assert problem.startswith(f"f.yaml:{place}: error: ")
    assert message in problem


def test_a_hundred_thousand_brackets_are_an_error_not_a_crash() -> None:
    assert len(problems_of("[" * 100_000)) == 1


def test_an_empty_text_is_nothing() -> None:
    assert load_yaml("# only a comment\n", "f.yaml").data is None


def test_problems_read_file_line_column_path_message() -> None:
    assert str(Problem("s.yaml", 3, 5, "a.b", "wrong (right)")) == "s.yaml:3:5: error: a.b: wrong (right)"
    assert str(Problem("--set a=1", None, None, "a", "wrong")) == "--set a=1: error: a: wrong"
    assert str(Problem("s.yaml", 1, 1, "", "empty")) == "s.yaml:1:1: error: empty"


def test_paths_are_written_as_people_write_them() -> None:
    assert format_path(("architectures", 1)) == "architectures[1]"
    assert format_path(("cluster", "gpu", "two words")) == "cluster.gpu.'two words'"


@given(st.text(alphabet=st.characters() | st.sampled_from("[]{}:,-&*!?|>'\"\n #%@<"), max_size=60))
@example("a: !!binary x\n")
@example("%YAML 9.9\n---\na")
@example("\ufeffa: 1")
@example("a: '\ud800'")
def test_any_text_is_a_document_or_a_source_error(text: str) -> None:
    try:
        document = compose_yaml(text, "f.yaml")
    except SourceError:
        return
    assert isinstance(document.data, dict | list | str | int | float | bool | None)
