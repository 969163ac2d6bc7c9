"""signals.py LIBRARY before|after|interrupt: Python's own handling of signals beside the library."""
import ctypes
import faulthandler
import os
import signal
import sys
import threading
import time

library, what = sys.argv[1], sys.argv[2]
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has its background jobs ignore interrupts
if what == "before":
    faulthandler.enable()
tc = ctypes.CDLL(library)
json = ctypes.c_char_p()
assert tc.tc_logs_json(ctypes.byref(json)) == 0 and json.value == b"[]"
if what == "after":
    faulthandler.enable()
if what == "interrupt":
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        for _ in range(6000):  # a minute
            tc.tc_logs_json(ctypes.byref(json))
            time.sleep(0.01)
    except KeyboardInterrupt:
        print("interrupted")
        sys.exit(0)
    sys.exit("no KeyboardInterrupt")
ctypes.string_at(8)
