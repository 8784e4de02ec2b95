"""Plain-text tables: no line too wide, nothing lost."""

from __future__ import annotations

from rankscope.cli.table import Block, Col, render_blocks, render_markdown


def _lines(block: Block, columns: int = 80) -> list[str]:
    return render_blocks([block], columns=columns).splitlines()


def test_numbers_stand_right_and_names_left() -> None:
    block = Block("Title", [Col("name", right=False), Col("ms")], [["a", "1.0"], ["long", "10.0"]])
    assert _lines(block) == ["Title", "name    ms", "a      1.0", "long  10.0"]


def test_a_name_is_shortened_in_the_middle_before_a_number_is_touched() -> None:
    block = Block("", [Col("name", right=False, shrink=8), Col("ms")], [["k" * 100 + "END", "12345.6"]])
    (_, row) = _lines(block, 30)
    assert len(row) == 30
    assert row.endswith("END  12345.6")
    assert "..." in row


def test_a_table_too_wide_is_stacked_with_its_keys_repeated() -> None:
    columns = [Col("rank", key=True), *(Col(f"column{i}") for i in range(12))]
    lines = _lines(Block("", columns, [["7", *(str(i) for i in range(12))]]), 40)
    assert all(len(line) <= 40 for line in lines)
    assert sum(line.startswith("   7") for line in lines) == lines.count("") + 1 > 1
    shown = " ".join(lines).split()
    assert all(f"column{i}" in shown for i in range(12))


def test_headers_of_two_lines_stand_at_the_bottom() -> None:
    lines = _lines(Block("", [Col("n"), Col("mean\nus")], [["1", "2"]]))
    assert lines == ["   mean", "n    us", "1     2"]


def test_a_detail_stands_beside_the_row_on_a_wide_screen_and_below_it_on_a_narrow_one() -> None:
    block = Block("", [Col("ms")], [["1"]], detail="name", details=["x" * 60])
    assert _lines(block, 80) == ["ms  name", " 1  " + "x" * 60]
    narrow = _lines(block, 41)
    assert narrow[:2] == ["ms", " 1"]
    assert narrow[2].startswith("    xxx")
    assert len(narrow[2]) == 41


def test_a_wrapped_cell_takes_more_lines_and_loses_nothing() -> None:
    sentence = "only its own times are known because the other ranks have no file"
    block = Block(
        "", [Col("q", right=False), Col("because", right=False, shrink=20, wrap=True)], [["slow?", sentence]]
    )
    lines = _lines(block, 30)
    assert all(len(line) <= 30 for line in lines)
    assert " ".join(" ".join(lines[1:]).split()) == f"slow? {sentence}"


def test_names_cannot_break_a_markdown_table_or_become_markup() -> None:
    block = Block("T", [Col("name", right=False)], [["a|b\n<img src=x> `c` [l](u)"]], notes=["note *x*"])
    lines = render_markdown([block]).splitlines()
    assert lines[2:4] == ["| name |", "|---|"]
    assert lines[4] == "| a\\|b &#60;img src=x&#62; \\`c\\` \\[l\\](u) |"
    assert lines[-1] == "note \\*x\\*"


def test_control_characters_in_cells_are_replaced() -> None:
    assert "\x1b" not in render_blocks([Block("t", [Col("n")], [["\x1b[2J"]])], columns=80)
