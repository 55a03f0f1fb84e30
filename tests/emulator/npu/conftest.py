"""These tests run inside a process on two emulated NPUs; tests/emulator/test_inside.py starts it.

To run some of them by hand: python -m migrator.emulator --devices 2 -m pytest tests/emulator/npu -k NAME
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for comparing.py, whatever pytest's import mode

if "_npu_emulator" not in sys.modules:
    collect_ignore_glob = ["test_*.py"]
