from __future__ import annotations

import subprocess
import sys


def test_importing_sanderling_is_quiet_and_light():
    """`import sanderling` and the nouns load no torch and print nothing."""
    code = (
        "import sys, sanderling, sanderling.types, sanderling.config, sanderling.rollout.scheduler, sanderling.cli\n"
        "heavy = {'torch', 'transformers', 'ray', 'pyarrow'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
