"""Options as groups, and the lists people type."""

from __future__ import annotations

import inspect

import pytest
import typer

from rankscope.cli.options import Cut, Output, Source, command_of, numbers, step_choice, words


def test_groups_become_one_flat_signature_and_come_back_filled() -> None:
    seen = []

    def body(source: Source, cut: Cut, output: Output) -> None:
        seen.append((source, cut, output))

    flat = command_of(body)
    names = list(inspect.signature(flat).parameters)
    assert names[0] == "run"
    assert {"steps", "ranks", "format", "strict"} <= set(names)
    flat(run=["x"], steps="all", strict=True)
    source, cut, output = seen[0]
    assert (source.run, cut.steps, output.strict, output.format) == (["x"], "all", True, None)


def test_every_option_has_a_sentence_of_help() -> None:
    from rankscope.cli.main import app

    group = typer.main.get_command(app)
    for command in group.commands.values():  # type: ignore[attr-defined]
        assert command.help
        for parameter in command.params:
            assert getattr(parameter, "help", None), (command.name, parameter.name)


def test_lists_of_numbers_are_sorted_and_unique() -> None:
    assert numbers("8,0-3, 2", option="--ranks") == [0, 1, 2, 3, 8]
    assert numbers(None, option="--ranks") is None


@pytest.mark.parametrize("wrong", ["", "a", "1-", "3-1", "-1", "1..3", "0-99999999"])
def test_anything_else_is_a_usage_error(wrong: str) -> None:
    with pytest.raises(typer.BadParameter):
        numbers(wrong, option="--ranks")


def test_steps_are_a_word_or_a_list() -> None:
    assert step_choice("steady") == "steady"
    assert step_choice("none") == "none"
    assert step_choice("3,5-7") == [3, 5, 6, 7]
    with pytest.raises(typer.BadParameter):
        step_choice("last")


def test_repeated_and_comma_separated_words_are_one_list() -> None:
    assert words(["rank,step", "device"]) == ["rank", "step", "device"]
    assert words(None) is None
