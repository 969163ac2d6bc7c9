"""redis-py with its defaults: redispy.py PORT PROTOCOL, protocol 0 for the default of this version."""

import struct
import sys

import redis

port, protocol = int(sys.argv[1]), int(sys.argv[2])
options = {"protocol": protocol} if protocol else {}
row = lambda r: struct.pack("<4I", *range(4 * r, 4 * r + 4))

client = redis.Redis(port=port, **options)
assert client.ping()
assert client.get("users:7") == row(7)
assert client.get("users:1000") is None
assert client.mget("users:1", "users:1000", "users:x", "items:1", "users:2") == [row(1), None, None, None, row(2)]
assert client.exists("users:1", "users:1000") == 1
assert client.type("users:1") == b"string" and client.ttl("users:1") == -1 and client.strlen("users:1") == 16
assert client.getrange("users:1", 4, 7) == row(1)[4:8]
assert client.dbsize() == 1000
assert len(list(client.scan_iter("users:*", count=100))) == 1000
assert client.keys("users:99?") == [b"users:%d" % r for r in range(990, 1000)]
with client.pipeline() as p:  # by default with MULTI and EXEC
    for r in range(500):
        p.get(f"users:{r}")
    assert p.execute() == [row(r) for r in range(500)]
with client.pipeline(transaction=False) as p:
    for r in range(500):
        p.get(f"users:{r}")
    assert p.execute() == [row(r) for r in range(500)]
assert client.client_id() > 0 and client.client_setname("me") and client.client_getname() in ("me", b"me")
assert any(c["name"] == "me" for c in client.client_list())
assert client.info("server")["redis_mode"] == "standalone" and client.info()["db0"]["keys"] == 1000
assert client.config_get("maxclients") in ({"maxclients": "1000"}, {b"maxclients": b"1000"})
assert "get" in client.command() and client.command_count() > 40
assert client.acl_whoami() in ("default", b"default") and client.role()[0] in ("master", b"master") and len(client.time()) == 2
assert client.slowlog_len() >= 0 and isinstance(client.slowlog_get(), list)
assert client.object("encoding", "users:1") in ("raw", b"raw")
assert client.execute_command("TC.GATHER", "users", 3, 2) == row(3) + row(2)
try:
    client.get("items:1")
    raise SystemExit("no error for a table that there is none of")
except redis.ResponseError as error:
    assert 'table ("items") must be one of 1: users' in str(error), error
try:
    client.execute_command("TC.SET", "users", 5, row(6))
    raise SystemExit("default may change rows")
except redis.ResponseError as error:
    assert "NOPERM" in str(error) or "no permission" in str(error), error

admin = redis.Redis(port=port, username="admin", password="write", **options)
with admin.pipeline() as p:
    p.watch("users:900")
    p.multi()
    p.execute_command("TC.SET", "users", 900, row(1))
    p.get("users:900")
    assert p.execute()[1] == row(1)
with admin.pipeline() as p:
    p.watch("users:900")
    client_changes = redis.Redis(port=port, username="admin", password="write", **options)
    client_changes.execute_command("TC.SET", "users", 900, row(900))
    p.multi()
    p.get("users:900")
    try:
        p.execute()
        raise SystemExit("EXEC ran although a watched row had changed")
    except redis.WatchError:
        pass
assert admin.client_kill_filter(user="default") >= 1
print("ok", redis.__version__, "protocol", protocol or "default")
