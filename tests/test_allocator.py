from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import resource, torch
from coalface.allocator import give_memory_back, keep_freed_memory
{tell}()
def pages(): return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
before = pages()
block = torch.ones(16 << 20)  # 64 MiB
del block
print((pages() - before) >> 20)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it is glibc that is told")
@pytest.mark.parametrize(("tell", "kept"), [("keep_freed_memory", True), ("give_memory_back", False)])
def test_a_freed_block_stays_or_goes(tell: str, kept: bool) -> None:
    told = subprocess.run([sys.executable, "-c", SCRIPT.format(tell=tell)], capture_output=True, text=True, check=True)
    assert (int(told.stdout) > 50) is kept
