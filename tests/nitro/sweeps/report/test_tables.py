"""A sweep's table in each form, read back by what reads such forms."""

import csv
import io

from nitro.sweeps.report.results import results
from nitro.sweeps.report.tables import told
from tests.nitro.sweeps.rows import ended, two_by_two

FOUND = results("name", two_by_two(), budget_usd=2.0)


def test_csv_has_every_number_in_full() -> None:
    lines = [*csv.DictReader(io.StringIO(told(FOUND, "csv")))]
    assert [line["setting"] for line in lines] == ["ppo", "im_pact"] * 2
    assert float(lines[1]["iqm"]) == 70.0
    assert float(lines[1]["low"]) <= 70.0 <= float(lines[1]["high"])
    assert (lines[1]["seeds"], lines[1]["env_steps"]) == ("4", "8000")


def test_markdown_is_a_table_of_equally_many_cells() -> None:
    lines = told(FOUND, "markdown").splitlines()
    first = [line for line in lines[: lines.index("")] if line]
    assert len(first) == 2 + 4
    assert len({line.count("|") for line in first}) == 1
    assert "of 2" in lines[-2]


def test_latex_has_settings_across_with_the_best_in_bold_and_names_escaped() -> None:
    text = told(FOUND, "latex")
    assert r" & ppo & im\_pact \\" in text
    (line,) = [line for line in text.splitlines() if line.startswith("CartPole-v1")]
    ppo, impact = line.split(" & ")[1:]
    assert ppo.startswith("45 [")
    assert impact.startswith(r"\textbf{70} [")
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 1


def test_text_says_how_few_seeds_there_are_and_what_is_missing() -> None:
    rows = [*two_by_two(), ended("Acrobot-v1", "ppo", 5, (), status="not started", outcome=None)]
    text = told(results("name", rows, budget_usd=None), "text")
    assert "seeds, not 4." in text
    assert "4 of 5" in text
    assert "Acrobot-v1/ppo/5: not started" in text
