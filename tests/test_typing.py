"""Types as users see them: a file of their code, under a strict checker."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
USER_CODE = ROOT / "tests" / "typing_user_code.py"


def test_user_code_passes_the_strict_checker_and_wrong_uses_do_not(tmp_path: Path) -> None:
    """Every wrong use in the file is an error that its comment expects, and nothing else is one."""
    settings = {
        "include": [USER_CODE.name],
        "extraPaths": [str(ROOT / "src")],
        "pythonVersion": "3.11",
        "typeCheckingMode": "strict",
        "reportUnnecessaryTypeIgnoreComment": "error",
    }
    shutil.copy(USER_CODE, tmp_path)
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings), "utf-8")
    checked = subprocess.run(
        [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson",
         "--project", str(tmp_path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    report = json.loads(checked.stdout)
    found = [
        f"{each['range']['start']['line'] + 1}: {each['message']}"
        for each in report["generalDiagnostics"]
    ]
    assert found == []
    assert report["summary"]["filesAnalyzed"] == 1
    assert "# pyright: ignore[" in USER_CODE.read_text("utf-8")
