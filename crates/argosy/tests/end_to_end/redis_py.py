"""redis-py against the servers whose ports are the arguments. Prints "ok", or fails."""

import sys
import threading
import time

import redis

ports = [int(port) for port in sys.argv[1:]]
assert redis.__version__.split(".")[0] == "8", redis.__version__


def check(port, **options):
    client = redis.Redis(port=port, client_name="check", **options)
    other = redis.Redis(port=ports[-1], **options)
    assert client.ping() and client.echo("hi") == b"hi"

    assert client.set("s", "1") and other.get("s") == b"1"
    assert client.set("s", "2", nx=True) is None and client.get("s") == b"1"
    assert client.set("s", "3", xx=True) and client.set("s", "4", get=True) == b"3"
    assert client.set("nobody", "x", xx=True) is None and client.get("nobody") is None

    assert client.set("s", "5", xx=True) and client.getdel("s") == b"5" and client.get("s") is None
    assert client.incr("n") == 1 and other.incrby("n", 41) == 42 and client.decr("n", 2) == 40
    assert client.incrbyfloat("n", "0.5") == 40.5 and other.append("n", "00") == 6
    assert client.setrange("n", 1, "9") == 6 and client.getdel("n") == b"49.500"
    assert client.set("s", "1") and client.execute_command("SET", "s", "4", "IFEQ", "1")
    assert client.execute_command("SET", "s", "5", "IFEQ", "1") is None

    # Keys expire, by whichever server they are asked for.
    assert client.set("x", "1", px=80) and 0 < other.pttl("x") <= 80
    assert client.set("y", "1") and other.expire("y", 100) and client.ttl("y") in (99, 100)
    assert client.set("y", "2", keepttl=True) and client.persist("y") and other.ttl("y") == -1
    assert client.getex("y", ex=100) == b"2" and client.expire("y", 50, gt=True) is False
    assert client.setex("y", 100, "3") and client.expiretime("y") > 1_700_000_000
    time.sleep(0.1)
    assert other.get("x") is None and client.ttl("x") == -2 and client.incr("x") == 1
    flat = client.execute_command("KV.PREFIX", "y")
    assert flat == [b"y", b"3"] and client.delete("x", "y") == 2
    batch = ["SET", "same", "1", "DEL", "same", "SET", "same", "2", "PX", "9000"]
    assert client.execute_command("KV.BATCH", *batch) == b"OK" and client.getdel("same") == b"2"

    # A write under a name is done once, whichever server it is sent to.
    me = client.execute_command("KV.ONCE", "ID")
    assert client.execute_command("KV.ONCE", me, 1, "INCRBY", "once", 5) == 5
    for some in (client, other):
        assert some.execute_command("KV.ONCE", me, 1, "INCRBY", "once", 5).startswith(b"APPLIED ")
    assert other.execute_command("KV.ONCE", me, 2, "INCR", "once") == 6 == int(client.get("once"))
    assert client.execute_command("KV.ONCE", other.execute_command("KV.ONCE", "ID"), 1, "DEL", "once") == 1

    # Values of 64 MiB, by whichever server; the ranges of others' keys leave their parts alone.
    long = bytes(range(256)) * (64 << 12)
    assert client.set("long", long) and other.get("long") == long and other.strlen("long") == 64 << 20
    assert other.set("long", "x", nx=True) is None and client.set("long", long[1:], ex=100, xx=True)
    assert 0 < other.ttl("long") <= 100 and other.set("long", "short", get=True) == long[1:]
    assert client.set("long", long[: 3 << 20]) and "long" in [key.decode() for key in client.keys("lon*")]
    assert other.append("long", b"end") == (3 << 20) + 3 and client.getrange("long", -4, -1) == long[-1:] + b"end"
    assert client.setrange("long", 600_000, b"middle") == (3 << 20) + 3 == other.strlen("long")
    changed = long[:600_000] + b"middle" + long[600_006 : 3 << 20] + b"end"
    assert client.expire("long", 100) and other.setrange("long", 7, b"") == client.append("long", b"") == len(changed)
    assert other.append("long", b"!") and other.get("long") == changed + b"!" and 0 < client.ttl("long") <= 100
    assert other.setrange("grown", 2_000_000, b"x") == 2_000_001 == client.append("grown", b"")
    assert client.delete("grown") == 1
    try:
        client.setrange("long", 64 << 20, b"x")
        raise AssertionError("a value of over 64 MiB")
    except redis.ResponseError as error:
        assert "max_long_value_bytes" in str(error)
    assert client.set("long", long[: 3 << 20])
    before = client.execute_command("KV.SNAPSHOT", "OPEN")
    assert client.execute_command("KV.DELRANGE", b"\xf8", "+") is not None
    assert other.get("long") == long[: 3 << 20] and other.getdel("long") == long[: 3 << 20]
    assert other.execute_command("KV.GET", "long", "SNAPSHOT", before) == long[: 3 << 20]
    assert client.execute_command("KV.SNAPSHOT", "CLOSE", before) == 1
    assert client.get("long") is None and client.keys("*ong") == []

    assert client.execute_command("KV.FLUSH") is not None and other.execute_command("KV.COMPACT") is not None

    # A snapshot is read by whichever server, over all regions, and is gone once it is closed.
    client.mset({"snap:a": "1", "snap:b": "2", "\x90snap": "3"})
    snapshot = client.execute_command("KV.SNAPSHOT", "OPEN", "TTL", 30)
    client.mset({"snap:a": "9", "snap:c": "9", "\x90snap": "9"})
    client.delete("snap:b")
    for some in (client, other):
        mget = some.execute_command("KV.MGET", "SNAPSHOT", snapshot, "snap:a", "\x90snap", "snap:c")
        assert mget == [b"1", b"3", None], mget
        assert some.execute_command("KV.GET", "snap:b", "SNAPSHOT", snapshot) == b"2"
        flat = some.execute_command("KV.PREFIX", "snap:", "SNAPSHOT", snapshot, "KEYSONLY")
        assert flat == [b"snap:a", b"snap:b"], flat
    assert client.mget("snap:a", "snap:b", "\x90snap") == [b"9", None, b"9"]
    assert other.exists("snap:a", "snap:b", "\x90snap", "snap:a") == 3
    opened = sum(redis.Redis(port=port).info("snapshots")["snapshots_open"] for port in ports)
    assert opened >= 1, opened
    assert other.execute_command("KV.SNAPSHOT", "RENEW", snapshot, "TTL", 60) == 1
    assert other.execute_command("KV.SNAPSHOT", "CLOSE", snapshot) == 1
    assert client.execute_command("KV.SNAPSHOT", "CLOSE", snapshot) == 0
    try:
        client.execute_command("KV.GET", "snap:a", "SNAPSHOT", snapshot)
        raise AssertionError("it was closed")
    except redis.ResponseError as error:
        assert "not open" in str(error), error
    client.delete("snap:a", "snap:c", "\x90snap")

    # Any bytes are a key and a value.
    raw = bytes(range(256))
    assert client.set(raw, raw * 100) and other.get(raw) == raw * 100
    assert client.strlen(raw) == 25600 and client.set("empty", b"") and client.get("empty") == b""

    pairs = {f"m{n}": f"v{n}" for n in range(500)}
    assert client.mset(pairs)
    assert other.mget(list(pairs)) == [value.encode() for value in pairs.values()]
    assert client.exists("m1", "m2", "nobody", "m1") == 3
    assert client.type("m1") == b"string" and client.type("nobody") == b"none"
    assert sorted(client.scan_iter(match="m*", count=37)) == sorted(key.encode() for key in pairs)
    flat = client.execute_command("KV.RANGE", "m", "n", "LIMIT", 10)
    assert flat[0::2] == sorted(key.encode() for key in pairs)[:10]
    assert all(value == b"v" + key[1:] for key, value in zip(flat[0::2], flat[1::2]))

    # A thousand commands in one pipeline: replies come in order.
    pipe = client.pipeline(transaction=False)
    for n in range(500):
        pipe.set(f"p{n}", n).get(f"p{n}")
    assert pipe.execute() == [reply for n in range(500) for reply in (True, str(n).encode())]

    # The default pipeline is a transaction: of one region, and each command sees those before it.
    pipe = client.pipeline()
    pipe.set("s", "in").incr("s:counted").append("s", "side").get("s").mget("s", "s:counted").delete("s:counted")
    assert pipe.execute() == [True, 1, 6, b"inside", [b"inside", b"1"], 1]
    assert other.get("s") == b"inside" and other.exists("s:counted") == 0
    pipe = client.pipeline()
    for n in range(2000):
        pipe.set(f"s:{n}", n)
    assert pipe.execute() == [True] * 2000 and other.get("s:1999") == b"1999"
    assert other.pipeline().delete(*[f"s:{n}" for n in range(2000)]).execute() == [2000]

    # Over several regions it is refused whole, and says what to do instead.
    pipe = client.pipeline().set("s", "changed").set("\x01s", "changed").incr("s:counted")
    try:
        pipe.execute()
        raise AssertionError("its keys lie in several regions")
    except redis.ResponseError as error:
        assert "transaction=False" in str(error) and "not applied" in str(error), error
    assert other.get("s") == b"inside" and other.exists("s:counted", "\x01s") == 0

    # So is one with a value that is kept in parts, or with a command that is none.
    for refused in (lambda pipe: pipe.set("s:l", long[: 3 << 20]), lambda pipe: pipe.execute_command("NO.SUCH")):
        pipe = client.pipeline().set("s", "changed")
        refused(pipe)
        try:
            pipe.execute()
            raise AssertionError("it cannot be queued")
        except (redis.ResponseError, redis.exceptions.ExecAbortError):
            assert other.get("s") == b"inside" and other.exists("s:l") == 0

    # What is watched and changed by another ends in an error that asks for another try.
    with client.pipeline() as pipe:
        pipe.watch("s")
        assert pipe.get("s") == b"inside" and other.set("s", "outside")
        pipe.multi()
        pipe.set("s", "changed")
        try:
            pipe.execute()
            raise AssertionError("it has changed")
        except redis.WatchError:
            assert other.get("s") == b"outside"
    assert client.set("s", "4")

    # Several clients count, on several servers.
    def count():
        with redis.Redis(port=ports[len(threads) % len(ports)], **options) as mine:
            for _ in range(20):
                mine.transaction(lambda pipe: add_one(pipe), "s:count")

    def add_one(pipe):
        now = int(pipe.get("s:count") or 0)
        pipe.multi()
        pipe.set("s:count", now + 1).incr("s:counted")

    threads = []
    for _ in range(5):
        threads.append(threading.Thread(target=count))
        threads[-1].start()
    for thread in threads:
        thread.join()
    assert client.mget("s:count", "s:counted") == [b"100", b"100"], client.mget("s:count", "s:counted")
    client.delete("s:count", "s:counted")

    # Locks are held by one, extended, and released by their holder only.
    lock, theirs = client.lock("s:lock", timeout=30), other.lock("s:lock", timeout=30, blocking=False)
    assert lock.acquire() and not theirs.acquire() and lock.owned()
    assert lock.extend(30) and 30_000 < client.pttl("s:lock") <= 60_000
    assert lock.extend(90, replace_ttl=True) and 60_000 < client.pttl("s:lock") <= 90_000
    assert lock.reacquire() and client.pttl("s:lock") <= 30_000
    lock.release()
    assert theirs.acquire() and client.exists("s:lock") == 1
    try:
        lock.local.token = b"stolen"
        lock.release()
        raise AssertionError("it is theirs")
    except redis.exceptions.LockError:
        assert theirs.owned()
    theirs.release()
    assert client.exists("s:lock") == 0
    try:
        client.eval("return 1", 0)
        raise AssertionError("no such script is known")
    except redis.ResponseError as error:
        assert "not applied" in str(error), error
    assert client.script_exists("c3f8721cbb97f72bc19e972846bd7aaf91901658", "0" * 40) == [True, False]

    # An unknown command is an error, and the connection stays.
    pipe = client.pipeline(transaction=False)
    pipe.execute_command("NO.SUCH", "a", "b").get("s")
    unknown, after = pipe.execute(raise_on_error=False)
    assert isinstance(unknown, redis.ResponseError) and "unknown command" in str(unknown), unknown
    assert after == b"4", after

    assert client.info()["redis_version"] and client.info("argosy")
    assert "save" in client.config_get("*")
    assert client.client_getname() == "check" and client.client_id() > 0
    assert client.command_count() > 20
    assert client.delete(*pairs) == 500 and client.dbsize() >= 0
    for key in list(client.scan_iter()):
        assert client.delete(key) == 1
    assert list(other.scan_iter()) == []
    client.close()
    other.close()


for port in ports:
    check(port)
    check(port, protocol=2)
print("ok")
