"""Types as users see them: files of their code, under a strict checker."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
USER_CODE = sorted((ROOT / "tests").glob("typing_*.py"))


def test_user_code_passes_the_strict_checker_and_wrong_uses_do_not(tmp_path: Path) -> None:
    """Every wrong use in these files is an error that its comment expects, and nothing else is one."""
    settings = {
        "include": [file.name for file in USER_CODE],
        "extraPaths": [str(ROOT / "src")],
        "pythonVersion": "3.11",
        "typeCheckingMode": "strict",
        "reportUnnecessaryTypeIgnoreComment": "error",
    }
    for file in USER_CODE:
        shutil.copy(file, tmp_path)
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings), "utf-8")
    checked = subprocess.run(
        [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson",
         "--project", str(tmp_path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    report = json.loads(checked.stdout)
    found = [
        f"{Path(each['file']).name}:{each['range']['start']['line'] + 1}: {each['message']}"
        for each in report["generalDiagnostics"]
    ]
    assert found == []
    assert report["summary"]["filesAnalyzed"] == len(USER_CODE) > 0
    for file in USER_CODE:
        assert "# pyright: ignore[" in file.read_text("utf-8"), file
