# eltrain starts Python with this: a thread of its own writes the stacks of this process to ELTRAIN_STACKS_FILE when it is asked to. No other
# thread gets a signal, which would end its sleep in a C library.
# Once torch.distributed has a process group, a thread waits to be asked where this process is in the collectives of each group.
# ELTRAIN_STACKS_HOOK=off in a role's env turns both off.
import os
import sys


class _Stacks:
    """The thread that writes stacks. It ends before each fork, as a process with one thread forks more safely, and starts anew after it."""

    def __init__(self, path):
        import _thread
        import faulthandler
        import signal
        import time

        fork = os.register_at_fork  # from Python 3.7
        self.thread, self.signal, self.sleep = _thread, signal, time.sleep
        self.ask = signal.SIGRTMIN + 13
        self.dump = signal.SIGRTMIN + 12
        self.file = open(path, "a")
        self.write = faulthandler.dump_traceback
        faulthandler.register(self.dump, file=self.file)  # for when the thread waits for an interpreter that is held in C
        signal.signal(self.ask, lambda *_: None)  # the thread waits for it; nothing dies of it
        signal.siginterrupt(self.ask, False)
        self.forking = _thread.allocate_lock()
        self.start()
        with self.ready:  # what holds the interpreter in C from now on can be seen
            pass
        fork(before=self.before, after_in_parent=self.after, after_in_child=self.after)

    def start(self):
        self.ready, self.told, self.ended = (self.thread.allocate_lock() for _ in range(3))
        for lock in (self.ready, self.told, self.ended):
            lock.acquire()
        self.started, self.path, self.stop = False, "", False
        # The thread takes no signal from one that waits for it: it begins with all of them blocked.
        every = [n for n in range(1, self.signal.NSIG) if n < 32 or n >= self.signal.SIGRTMIN]  # without those of the C library
        mask = self.signal.pthread_sigmask(self.signal.SIG_BLOCK, every)
        try:
            self.thread.start_new_thread(self.serve, ())
            self.started = True
        finally:
            self.signal.pthread_sigmask(self.signal.SIG_SETMASK, mask)

    def serve(self):
        def _serve_eltrain():
            while not self.stop:
                self.signal.sigwait([self.ask])
                if not self.stop:
                    self.write(file=self.file)

        try:
            try:
                self.ident = self.thread.get_ident()
                self.path = "/proc/" + os.readlink("/proc/thread-self")
                with open(self.path + "/comm", "w") as name:
                    name.write("eltrain-stacks")
                self.signal.pthread_sigmask(self.signal.SIG_UNBLOCK, [self.dump])
            finally:
                self.ready.release()
            _serve_eltrain()
        except Exception:
            pass
        finally:
            self.told.acquire()  # until then it must be there for the signal
            self.ended.release()

    def before(self):
        self.forking.acquire()
        if not self.started:
            return
        with self.ready:
            self.stop = True
        self.signal.pthread_kill(self.ident, self.ask)
        self.told.release()
        self.ended.acquire()
        for _ in range(1000):  # it is still a thread for a moment
            if not os.path.exists(self.path):
                break
            self.sleep(1e-5)

    def after(self):
        try:
            self.start()
        except Exception:
            pass  # none can be started, as at the interpreter's end
        finally:
            self.forking.release()


def _collectives(c10d, recorder):
    """Where this process is in the collectives of each process group, as PyTorch's flight recorder has it."""
    import json

    groups = {name: {"group": name, "entered": 0, "waits": 0} for name in c10d._world.pg_names.values()}
    recorded = False
    for dump in ("_dump_nccl_trace_json", "_dump_fr_trace_json"):
        if not hasattr(recorder, dump):
            continue
        for e in json.loads(getattr(recorder, dump)()).get("entries", []):
            name, title = e["process_group"]
            if name not in groups:
                continue
            g, recorded = groups[name], True
            g["title"] = title
            done = e["retired"] or e["state"] == "completed"
            if e["is_p2p"]:
                if not done:
                    g.setdefault("peer", e["profiling_name"])
                continue
            number = e["collective_seq_id"]
            first = not done and not 0 < g["waits"] <= number
            if first:
                g["waits"] = number
            if first or not g["waits"] and number >= g["entered"]:
                g["op"], g["sizes"] = e["profiling_name"], str(e["input_sizes"])
            g["entered"] = max(g["entered"], number)
    return list(groups.values()) if recorded else []


def _answer(path, c10d, recorder):
    import json
    import threading

    if getattr(sys, "_eltrain_answers", 0) == os.getpid():
        return
    sys._eltrain_answers = os.getpid()
    ask = path + ".ask"
    if not os.path.exists(ask):
        os.mkfifo(ask, 0o600)
    fd = os.open(ask, os.O_RDWR)

    def _serve_eltrain():
        while os.read(fd, 4096):
            try:
                answer = json.dumps(_collectives(c10d, recorder))
            except Exception:
                answer = "[]"
            with open(path + ".new", "w") as file:
                file.write(answer)
            os.replace(path + ".new", path + ".collectives")

    threading.Thread(target=_serve_eltrain, name="eltrain", daemon=True).start()


class _Finder:
    """Wraps init_process_group when torch.distributed is imported. Before that a thread would be in the way of forks."""

    def __init__(self, path):
        self.path = path

    def find_spec(self, name, path=None, target=None):
        if name != "torch.distributed.distributed_c10d":
            return None
        from functools import wraps
        from importlib.machinery import PathFinder

        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            init = getattr(module, "init_process_group", None)
            recorder = sys.modules.get("torch._C._distributed_c10d")
            if init is None or not (hasattr(recorder, "_dump_fr_trace_json") or hasattr(recorder, "_dump_nccl_trace_json")):
                return

            @wraps(init)
            def init_process_group(*args, **kwargs):
                result = init(*args, **kwargs)
                try:
                    if str(module.get_rank()) == os.environ.get("RANK"):  # not that of a process of its own
                        _answer(self.path, module, recorder)
                except Exception:
                    pass
                return result

            module.init_process_group = init_process_group

        spec.loader.exec_module = exec_module
        return spec


try:
    _path = os.environ.get("ELTRAIN_STACKS_FILE")
    if _path:
        sys._eltrain_stacks = _Stacks(_path)
        sys.meta_path.insert(0, _Finder(_path))
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
