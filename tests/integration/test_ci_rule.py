"""Where CI is set, a test that had to run and was skipped fails the session."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.conftest"]
PYTEST += ["-c", str(ROOT / "pyproject.toml")]
SKIPPED = "import pytest\n\n@pytest.mark.{mark}\ndef test_it() -> None:\n    pytest.skip('not here')\n"
MODULE = "import pytest\n\npytest.skip('not here', allow_module_level=True)\n"


@pytest.mark.parametrize(
    ("text", "ci", "code"),
    [
        (SKIPPED.format(mark="database"), "true", 1),
        (SKIPPED.format(mark="browser"), "true", 1),
        (SKIPPED.format(mark="tool"), "true", 1),
        (SKIPPED.format(mark="database"), "", 0),
        (SKIPPED.format(mark="timeout(5)"), "true", 0),
        (SKIPPED.format(mark="database\n@pytest.mark.as_root"), "true", int(os.geteuid() == 0)),
        (MODULE, "1", 1),
    ],
)
def test_a_skip_fails_the_session(text: str, ci: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(text)
    done = subprocess.run(
        [*PYTEST, f"--rootdir={tmp_path}", tmp_path],
        cwd=ROOT,
        env={"CI": ci, "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert ("CI must run them" in done.stdout) == (code == 1)
