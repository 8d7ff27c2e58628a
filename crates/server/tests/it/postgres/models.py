"""What dbt does over PostgreSQL's protocol: two runs of a project of views, and its test. The argument is the port."""

import subprocess
import sys
import tempfile
from pathlib import Path

import psycopg2

port = sys.argv[1]
PROFILE = f"""
plant:
  target: only
  outputs:
    only: {{type: postgres, host: 127.0.0.1, port: {port}, user: ann, password: x, dbname: plant, schema: public, threads: 1}}
"""
MODELS = {
    "fast.sql": "select id, max(speed) as top, count(*) from {{ source('plant', 'cars') }} group by id",
    "best.sql": "select max(top) as best from {{ ref('fast') }}",
    "schema.yml": """
version: 2
sources: [{name: plant, schema: public, tables: [{name: cars}]}]
models: [{name: fast, columns: [{name: id, data_tests: [not_null, unique]}]}]
""",
}


def dbt(*words):
    done = subprocess.run(
        [str(Path(sys.executable).parent / "dbt"), "--no-use-colors", "--no-send-anonymous-usage-stats", *words],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rows(statement):
    connection = psycopg2.connect(host="127.0.0.1", port=port, user="ann", dbname="plant")
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


with tempfile.TemporaryDirectory() as folder:
    project = Path(folder)
    (project / "profiles.yml").write_text(PROFILE)
    (project / "dbt_project.yml").write_text("name: plant\nprofile: plant\nmodel-paths: [models]\nmodels: {plant: {+materialized: view}}\n")
    (project / "models").mkdir()
    for name, text in MODELS.items():
        (project / "models" / name).write_text(text)
    for _ in range(2):
        told = dbt("run")
        assert "PASS=2" in told, told
        views = sorted(name for (name,) in rows("SELECT viewname FROM pg_views WHERE schemaname = 'public'"))
        assert views == ["best", "fast"], views
        assert rows("SELECT best FROM best") == [(2.5,)]
        assert sorted(rows("SELECT id, count FROM fast")) == [("other", 1), ("seen", 1)]
    told = dbt("test")
    assert "PASS=2" in told, told

print("done")
