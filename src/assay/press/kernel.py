"""Kernel: start notebook kernels without ports, and end whatever they leave behind.

Owns the kernel manager and the ending of process trees. Does not own execution (``worker``).

jupyter_client picks TCP ports before the kernel binds them, so two notebooks started together can
take the same one (nteract/papermill#511). Unix sockets in a folder of the run's own have no such
race, and nothing on the network can read them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from typing import Any, ClassVar

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from traitlets import default

__all__ = ["SOCKETS", "SOCKET_PATH_LIMIT", "SocketKernelManager", "adopt_orphans"]

# Environment variable that names the folder for the sockets.
SOCKETS = "ASSAY_SOCKETS"

# Bytes of a socket's path: sockaddr_un has 108 on Linux and 104 on macOS, the last one a zero.
SOCKET_PATH_LIMIT = 103

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


class _ThisPython(KernelSpecManager):
    """The one kernel: this interpreter, whatever kernels are installed on the machine."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        return KernelSpec(
            argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
            display_name="Python 3",
            language="python",
        )


class SocketKernelManager(AsyncKernelManager):
    """Start this interpreter's kernel over Unix sockets, and remember how it ended."""

    ended: ClassVar[int | None] = None

    @default("transport")
    def _transport(self) -> str:
        return "ipc"

    @default("ip")
    def _ip(self) -> str:
        return os.path.join(os.environ[SOCKETS], "k")

    @default("kernel_spec_manager")
    def _kernel_spec_manager(self) -> KernelSpecManager:
        return _ThisPython(parent=self)

    async def _async_is_alive(self) -> bool:
        alive = await super()._async_is_alive()
        if not alive and self.provisioner is not None:
            # The exit status is gone once the kernel has been cleaned up after.
            SocketKernelManager.ended = await self.provisioner.poll()
        return alive

    is_alive: Any = _async_is_alive


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends.

    So ``bench.engines.process.end_tree`` finds them. Does nothing where the system cannot do it
    (anything but Linux).
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
