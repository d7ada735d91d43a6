# eltrain starts Python with this: upon a real-time signal, faulthandler writes the stacks of this process to ELTRAIN_STACKS_FILE.
# ELTRAIN_STACKS_HOOK=off in a role's env turns it off.
import os
import sys


def _register():
    path = os.environ.get("ELTRAIN_STACKS_FILE")
    if not path:
        return
    import faulthandler
    import signal

    file = open(path, "a")
    faulthandler.register(signal.SIGRTMIN + 12, file=file)
    sys._eltrain_stacks = file  # closed, its number would be another file's


try:
    _register()
except Exception:
    pass

# The sitecustomize that this one hides, if there is one.
_own = sys.modules.pop("sitecustomize", None)
_here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [p for p in sys.path if p != _here]
try:
    import sitecustomize  # noqa: F401
except ModuleNotFoundError as _e:
    if _e.name != "sitecustomize":
        raise
finally:
    if _own is not None:
        sys.modules.setdefault("sitecustomize", _own)
