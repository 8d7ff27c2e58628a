"""Writes through the clients of InfluxDB 1 and 2 into the server at the port of the first argument."""

import datetime
import sys

import influxdb
import influxdb_client
from influxdb_client.client.write_api import SYNCHRONOUS, WriteOptions
from influxdb_client.rest import ApiException

PORT = int(sys.argv[1])
S = 1_700_000_000


def version_1() -> None:
    client = influxdb.InfluxDBClient("127.0.0.1", PORT, database="plant")
    assert client.ping().startswith("headwater-"), client.ping()
    client.create_database("plant")
    assert client.get_list_database() == [{"name": "plant"}]
    fields = {"v": 0.5, "n": 7, "ok": True, "text": 'a "b"'}
    point = {"measurement": "t", "tags": {"d": "one-points"}, "time": S * 10**9, "fields": fields}
    assert client.write_points([point])
    point = {"measurement": "t", "tags": {"d": "one-ms"}, "time": S * 1000 + 5, "fields": {"v": 1.5}}
    assert client.write_points([point], time_precision="ms")
    packed = influxdb.InfluxDBClient("127.0.0.1", PORT, database="plant", gzip=True)
    assert packed.write_points([f"t,d=one-gzip v=2.5 {S}"], time_precision="s", protocol="line")
    try:
        client.write_points(["t,d=one-gzip v=t 5", f"t,d=one-gzip v=2.5 {S}"], time_precision="s", protocol="line")
    except influxdb.exceptions.InfluxDBClientError as error:
        assert error.code == 400 and "partial write: 1 lines refused, 1 stored" in str(error), error
    else:
        raise AssertionError("a refused line went unnoticed")


def version_1_asks() -> None:
    client = influxdb.InfluxDBClient("127.0.0.1", PORT, database="plant")
    lines = [f"ask,host={host} load={load},n={load}i {S + load}" for host in "ab" for load in range(4)]
    assert client.write_points(lines, time_precision="s", protocol="line")
    points = list(client.query("SELECT load, n FROM ask WHERE host = 'a'", epoch="s").get_points())
    assert points == [{"time": S + load, "load": load, "n": load} for load in range(4)], points
    found = client.query("SELECT mean(load) FROM ask WHERE time >= $since GROUP BY time(2s), host fill(none)",
                         bind_params={"since": f"{datetime.datetime.fromtimestamp(S, datetime.timezone.utc).isoformat()}"})
    assert [tags for (_, tags), _ in found.items()] == [{"host": "a"}, {"host": "b"}], found.raw
    means = [point["mean"] for point in found.get_points(tags={"host": "b"})]
    assert means == [0.5, 2.5], found.raw
    parts = client.query("SELECT n FROM ask", chunked=True, chunk_size=3, epoch="ms")
    assert [len(list(part.get_points())) for part in parts] == [3, 3, 2]
    assert {"name": "ask"} in client.get_list_measurements()
    assert "ask,host=a" in client.get_list_series(measurement="ask")
    values = client.query('SHOW TAG VALUES FROM ask WITH KEY = "host"').get_points()
    assert [point["value"] for point in values] == ["a", "b"]
    assert client.get_list_retention_policies()[0]["name"] == "autogen"
    assert not list(client.query("SELECT load FROM nothing"))
    several = client.query("SELECT max(load) FROM ask; SHOW FIELD KEYS FROM ask")
    assert len(several) == 2, several
    for statement in ("SELECT load FORM ask", "SELECT nonsense(load) FROM ask", "INSERT ask load=1"):
        try:
            client.query(statement)
        except influxdb.exceptions.InfluxDBClientError as error:
            assert "FORM" in str(error) or "nonsense" in str(error) or "INSERT" in str(error), error
        else:
            raise AssertionError(f"{statement} went unnoticed")
    client.query("DROP MEASUREMENT ask")
    assert {"name": "ask"} not in client.get_list_measurements()


def version_2() -> None:
    url = f"http://127.0.0.1:{PORT}"
    with influxdb_client.InfluxDBClient(url=url, token="any", org="o") as client:
        assert client.ping()
        api = client.write_api(write_options=SYNCHRONOUS)
        point = influxdb_client.Point("t").tag("d", "two-point").field("v", 3.5).time(S * 10**9 + 1)
        api.write(bucket="plant", record=point)
        try:
            api.write(bucket="plant", record=[f"t,d=two-partial v=1 {S * 10**9}", "t,d=two-partial v="])
        except ApiException as error:
            assert error.status == 400 and "partial write: 1 lines refused, 1 stored" in error.body, error
            assert error.message.startswith("partial write: "), error.message
        else:
            raise AssertionError("a refused line went unnoticed")
    with influxdb_client.InfluxDBClient(url=url, token="any", org="o", enable_gzip=True) as client:
        api = client.write_api(write_options=SYNCHRONOUS)
        record = f"t,d=two-gzip v=4.5 {S * 1000 + 6}"
        api.write(bucket="plant", record=record, write_precision=influxdb_client.WritePrecision.MS)
    failures = []
    with influxdb_client.InfluxDBClient(url=url, token="any", org="o") as client:
        options = WriteOptions(batch_size=300, flush_interval=200)
        with client.write_api(write_options=options, error_callback=lambda *why: failures.append(why)) as api:
            for number in range(1000):
                record = f"t,d=two-batched v={number} {S + number}"
                api.write(bucket="plant", record=record, write_precision=influxdb_client.WritePrecision.S)
    assert not failures, failures


def two_databases() -> None:
    clients = [influxdb.InfluxDBClient("127.0.0.1", PORT, database=name) for name in ("plant", "yard")]
    for number, client in enumerate(clients):
        client.create_database(("plant", "yard")[number])
        point = {"measurement": "shared", "tags": {"d": "x"}, "time": S * 10**9, "fields": {"v": float(number)}}
        assert client.write_points([point])
    found = [list(client.query("SELECT v FROM shared", epoch="s").get_points()) for client in clients]
    assert found == [[{"time": S, "v": number}] for number in range(2)], found
    assert clients[0].get_list_database() == [{"name": "plant"}, {"name": "yard"}]
    clients[1].drop_database("yard")
    assert clients[0].get_list_database() == [{"name": "plant"}]
    assert len(list(clients[0].query("SELECT v FROM shared").get_points())) == 1


version_1()
version_1_asks()
version_2()
two_databases()
print("done")
