"""The programs of the README and of the page for Python run, and print what these show."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from pyarrow import parquet
from users import dotted

ROOT = Path(__file__).parents[3]
README, PAGE = ((ROOT / page).read_text() for page in ("README.md", "docs/python.md"))


@pytest.mark.skipif("REWIRE_PROGRAM" not in os.environ, reason="REWIRE_PROGRAM names no program that writes the package")
def test_programs_run_and_print_the_scores(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    subprocess.run([os.environ["REWIRE_PROGRAM"], "package", "--out", "model.rewire"], check=True, capture_output=True)
    lines = (ROOT / "crates/cli/demo/interactions.jsonl").read_text().splitlines()[:20]
    parquet.write_table(dotted([json.loads(line) for line in lines]), "users.parquet")
    programs = re.findall(r"```python\n(.*?)```", README + PAGE, re.S)
    assert len(programs) == 6
    names, printed = {}, []
    for program in programs:
        exec(compile(program, "README.md", "exec"), names)
        printed.append(capsys.readouterr().out)
    assert printed[0] == re.search(r"```text scores\n(.*?)```", README, re.S)[1]
    assert names["scores"].num_rows == sum(len(json.loads(line)["candidates"]["item_id"]) for line in lines)
    assert printed[3] == "cpu\n"
    assert printed[4].splitlines()[-1].startswith("20 ")
    assert printed[5].endswith("(103, 128)\n")
