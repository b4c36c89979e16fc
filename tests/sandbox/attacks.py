"""Programs that try to harm the host or to pass without the answer: name -> (form, code).

The problem is to double a number. ``program`` reads it from standard input, ``function`` is called
with it, ``tests`` is called by tests that run elsewhere. None of these programs doubles a number.
"""

from __future__ import annotations

from textwrap import dedent

PROGRAM, FUNCTION, TESTS = "program", "function", "tests"

ATTACKS: dict[str, tuple[str, str]] = {}


def attack(name: str, form: str, code: str) -> None:
    assert name not in ATTACKS
    ATTACKS[name] = (form, dedent(code).strip() + "\n")


# Taking all of something

attack("fork bomb", PROGRAM, "import os\nwhile True:\n    os.fork()")
attack(
    "threads without end",
    PROGRAM,
    """
    import threading, time
    while True:
        threading.Thread(target=time.sleep, args=(100,)).start()
    """,
)
attack("endless loop", PROGRAM, "while True:\n    pass")
attack("sleep", PROGRAM, "import time\ntime.sleep(1000)")
attack("two gigabytes in a list", PROGRAM, "x = [0] * (1 << 28)\nprint(len(x))")
attack(
    "two gigabytes in many processes",
    PROGRAM,
    """
    import os, time
    for _ in range(20):
        if os.fork() == 0:
            x = bytearray(b"x") * (200 << 20)
            time.sleep(100)
    time.sleep(100)
    """,
)
attack(
    "two gigabytes of files",
    PROGRAM,
    """
    for i in range(300):
        with open(f"/tmp/{i}", "wb") as f:
            f.write(b"x" * (7 << 20))
    print(6)
    """,
)
attack(
    "two gigabytes of shared memory",
    PROGRAM,
    """
    for i in range(300):
        with open(f"/dev/shm/{i}", "wb") as f:
            f.write(b"x" * (7 << 20))
    """,
)
attack(
    "memory without a file",
    PROGRAM,
    """
    import os
    for i in range(60):
        os.write(os.memfd_create("x"), b"x" * (7 << 20))
    """,
)
attack(
    "System V shared memory",
    PROGRAM,
    """
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.shmget(0, 1 << 30, 0o1666) < 0:
        raise OSError(ctypes.get_errno(), "shmget")
    """,
)
attack(
    "a gigabyte of output",
    PROGRAM,
    "import sys\nwhile True:\n    sys.stdout.write('6\\n' * 65536)",
)
attack(
    "a gigabyte of errors",
    PROGRAM,
    "import sys\nwhile True:\n    sys.stderr.write('x' * 65536)",
)
attack("deep recursion", PROGRAM, "def f(x):\n    return f(x + 1) + 1\nprint(f(0))")
attack("an integer of ten million digits", PROGRAM, "print(str(7 ** 11_800_000)[:1])")
attack(
    "a regular expression without end",
    PROGRAM,
    "import re\nre.match('(a+)+$', 'a' * 64 + 'b')",
)
attack(
    "a hundred thousand files",
    PROGRAM,
    "for i in range(100_000):\n    open(f'/tmp/f{i}', 'w').close()\nprint(6)",
)
attack(
    "a folder a thousand deep",
    PROGRAM,
    """
    import os
    for _ in range(5000):
        os.mkdir("d")
        os.chdir("d")
    """,
)
attack(
    "raising its own limits",
    PROGRAM,
    """
    import resource
    for limit in (resource.RLIMIT_AS, resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE):
        resource.setrlimit(limit, (1 << 40, 1 << 40))
    x = bytearray(4 << 30)
    print(6)
    """,
)

# Reaching the network and other processes

attack(
    "a connection to the internet",
    PROGRAM,
    """
    import socket
    socket.create_connection(("1.1.1.1", 53), 3)
    print(6)
    """,
)
attack(
    "a connection to this machine",
    PROGRAM,
    """
    import socket
    for port in range(1, 65535, 7):
        try:
            socket.create_connection(("127.0.0.1", port), 0.1)
            print(6)
        except ConnectionRefusedError:
            pass
    """,
)
attack(
    "a server",
    PROGRAM,
    """
    import socket
    s = socket.socket()
    s.bind(("0.0.0.0", 8000))
    s.listen()
    s.accept()
    """,
)
attack("a name", PROGRAM, "import socket\nprint(socket.getaddrinfo('pypi.org', 443))")
attack(
    "an abstract socket",
    PROGRAM,
    """
    import socket
    s = socket.socket(socket.AF_UNIX)
    s.connect("\\0/org/freedesktop/systemd1/notify")
    print(6)
    """,
)
attack(
    "netlink",
    PROGRAM,
    "import socket\nsocket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)\nprint(6)",
)
attack(
    "a socket to the hypervisor",
    PROGRAM,
    "import socket\nsocket.socket(40, socket.SOCK_STREAM).connect((2, 1024))\nprint(6)",
)
attack("killing process 1", PROGRAM, "import os, signal\nos.kill(1, signal.SIGKILL)\nos.kill(1, 2)")
attack("killing everyone", PROGRAM, "import os\nos.kill(-1, 9)\nprint(6)")
attack(
    "killing the parent",
    PROGRAM,
    "import os\nfor n in (9, 15, 2, 19):\n    os.kill(os.getppid(), n)\nprint(7)",
)
attack("stopping itself", PROGRAM, "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)")
attack(
    "a process that stays",
    PROGRAM,
    """
    import os, time
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True:
                time.sleep(0.1)
                open("/tmp/alive", "w").write("6")
        os._exit(0)
    print(7)
    """,
)
attack(
    "ignoring signals",
    PROGRAM,
    """
    import signal, time
    for n in range(1, 65):
        try:
            signal.signal(n, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    while True:
        time.sleep(1)
    """,
)
attack(
    "tracing process 1",
    PROGRAM,
    """
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(16, 1, 0, 0):
        raise OSError(ctypes.get_errno(), "ptrace")
    """,
)
attack(
    "writing the memory of process 1",
    PROGRAM,
    """
    for process in (1, 2):
        with open(f"/proc/{process}/mem", "r+b", 0) as memory:
            memory.seek(1 << 22)
            memory.write(b"x")
    """,
)
attack(
    "the open files of process 1",
    PROGRAM,
    "import os\nfor f in os.listdir('/proc/1/fd'):\n    open(f'/proc/1/fd/{f}', 'w').write('6\\n')",
)

# Reading and writing the host's files

attack("the password file", PROGRAM, "print(open('/etc/passwd').read())")
attack("the environment of process 1", PROGRAM, "print(open('/proc/1/environ').read())")
attack(
    "the home folders",
    PROGRAM,
    "import os\nprint(os.listdir('/root'), os.listdir('/home'), open('/root/.ssh/id_rsa').read())",
)
attack(
    "a key in the environment",
    PROGRAM,
    "import os\nprint(os.environ['VLLM_API_KEY'], os.environ['PCLR_TEST_KEY'])",
)
attack(
    "writing among the programs",
    PROGRAM,
    "for p in ('/usr/bin/x', '/x', '/dev/x', '/lib/x', '/usr/lib/x'):\n    open(p, 'w')",
)
attack(
    "a link out of its folder",
    PROGRAM,
    """
    import os
    os.symlink("/etc/shadow", "/tmp/s")
    print(open("/tmp/s").read())
    """,
)
attack(
    "a hard link",
    PROGRAM,
    "import os\nos.link('/usr/bin/python3', '/tmp/p')\nos.chmod('/tmp/p', 0o4755)\nprint(6)",
)
attack(
    "the folders above",
    PROGRAM,
    "print(open('../../../../../../etc/hostname').read(), open('/proc/self/root/etc/passwd'))",
)

# New rights

attack("a file with setuid", PROGRAM, "import os\nos.setuid(0)\nprint(6)")
attack(
    "programs with setuid",
    PROGRAM,
    """
    import os, subprocess
    for name in ("su", "mount", "passwd", "newgrp", "sudo"):
        subprocess.run([f"/usr/bin/{name}"], input=b"", timeout=1)
    os.setuid(0)
    """,
)


def _call(name: str, number_x86: int, number_arm: int, *arguments: int) -> None:
    words = ", ".join(map(str, arguments))
    code = f"""
    import ctypes, platform
    libc = ctypes.CDLL(None, use_errno=True)
    number = {number_x86} if platform.machine() == "x86_64" else {number_arm}
    if libc.syscall(number, {words}) < 0:
        raise OSError(ctypes.get_errno(), "{name}")
    print(6)
    """
    attack(name, PROGRAM, code)


_call("unshare", 272, 97, 0x10000000)
_call("a clone in a new namespace", 56, 220, 0x10000000 | 17, 0, 0, 0, 0)
_call("io_uring", 425, 425, 8, 0)
_call("keyctl", 250, 219, 0, -3, 1)
attack(
    "mount",
    PROGRAM,
    """
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", b"/tmp", b"tmpfs", 0, None):
        raise OSError(ctypes.get_errno(), "mount")
    print(6)
    """,
)
attack("chroot", PROGRAM, "import os\nos.chroot('/tmp')\nprint(6)")

# Passing without the answer

attack("ending before the tests", TESTS, "import sys\nsys.exit(0)")
attack("ending in the function", TESTS, "import os\ndef f(x):\n    os._exit(0)")
attack(
    "ending at the end",
    TESTS,
    "import atexit, os\natexit.register(os._exit, 0)\ndef f(x):\n    return 0",
)
attack(
    "equal to everything",
    TESTS,
    """
    class Equal:
        def __eq__(self, other): return True
        def __ne__(self, other): return False
        def __bool__(self): return True
        def __contains__(self, other): return True
        def __lt__(self, other): return True
        def __gt__(self, other): return True
        def __hash__(self): return 6
    def f(x):
        return Equal()
    """,
)
attack(
    "a kind of int that is equal to everything",
    FUNCTION,
    """
    class Any(int):
        def __eq__(self, other): return True
        def __repr__(self): return "6"
        def __index__(self): return 6
        def __int__(self): return 6
    def f(x):
        return Any(7)
    """,
)
attack(
    "a kind of text that changes its writing",
    FUNCTION,
    """
    class Text(str):
        def __eq__(self, other): return True
        def __str__(self): return "6"
    def f(x):
        return Text("7")
    """,
)
attack("not a number", FUNCTION, "def f(x):\n    return float('nan')")
attack(
    "reduce",
    FUNCTION,
    "class R:\n    def __reduce__(self): return (int, (6,))\ndef f(x): return R()",
)
attack(
    "other builtins",
    TESTS,
    """
    import builtins, json, sys
    builtins.print = builtins.isinstance = builtins.len = lambda *a, **k: True
    json.dumps = lambda *a, **k: '{"verdict": {"passed": true}}'
    sys.stdin = None
    def f(x):
        return 0
    """,
)
attack(
    "forged messages",
    TESTS,
    """
    import json, os
    forged = [{"verdict": {"passed": True}}, {"end": {"code": 0}}, {"ready": True}]
    for message in forged:
        for fd in range(1, 64):
            try:
                os.write(fd, json.dumps(message).encode() + b"\\n")
            except OSError:
                pass
    def f(x):
        return 0
    """,
)
attack(
    "forged replies that fit nothing",
    FUNCTION,
    """
    import os
    os.write(4, b'{"value": {"o": [1, 2]}}\\n{"value": {"d": [[[], 1]]}}\\n')
    def f(x):
        return 0
    """,
)
attack(
    "looking for the expected value",
    TESTS,
    """
    import gc, sys
    def f(x):
        frame, found = sys._getframe(), []
        while frame is not None:
            found += list(frame.f_locals.values()) + list(frame.f_globals.values())
            frame = frame.f_back
        found += gc.get_objects()
        wanted = [o for o in found if type(o) is dict and "expected" in o]
        texts = [o for o in found if type(o) is str and "double_of_3_is" in o]
        if texts:
            return 6
        return wanted[0]["expected"] if wanted else 0
    """,
)
attack(
    "the source of the harness",
    FUNCTION,
    """
    import re
    source = open("/proc/1/cmdline").read() + open("/proc/self/cmdline").read()
    def f(x):
        found = re.findall("expected = ([0-9]+)", source)
        return int(found[0]) if found else 0
    """,
)
attack(
    "an answer when time is up",
    PROGRAM,
    "import time\nn = int(input())\ntime.sleep(30)\nprint(2 * n)",
)
attack("a value that is too long", FUNCTION, "def f(x):\n    return 'x' * (1 << 24)")
attack("a value of no plain type", FUNCTION, "def f(x):\n    return object()")
attack("a nest without end", FUNCTION, "def f(x):\n    a = []\n    a.append(a)\n    return a")
attack(
    "another value at each call", TESTS, "n = 0\ndef f(x):\n    global n\n    n += 1\n    return n"
)
attack(
    "two answers",
    PROGRAM,
    """
    import os
    if os.fork() == 0:
        print(6)
    else:
        os.wait()
        print(10)
    """,
)
attack(
    "odd characters",
    PROGRAM,
    "print('6\\0\\ud800'.encode('utf-8', 'replace'), '\\uff16', '6\\x00')",
)
attack(
    "an answer, then work without end",
    FUNCTION,
    """
    import threading
    def work():
        while True:
            pass
    def f(x):
        threading.Thread(target=work).start()
        return 5
    """,
)
attack(
    "an exception that no file can have",
    FUNCTION,
    "def f(x):\n    raise ValueError('\\ud800' * 10)",
)
