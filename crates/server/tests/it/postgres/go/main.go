// What programs in Go do over PostgreSQL's protocol: pgx, whose driver Grafana's data source uses, in its ways to ask, and
// database/sql with pgx and lib/pq. The argument is the port.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"reflect"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/lib/pq"
)

func check(got, wanted any) {
	if !reflect.DeepEqual(got, wanted) {
		panic(fmt.Sprintf("%#v is not %#v", got, wanted))
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

var first = time.Date(2023, 11, 14, 22, 13, 20, 0, time.UTC)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	where := fmt.Sprintf("postgres://ann@127.0.0.1:%s/plant?sslmode=disable", os.Args[1])
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec,
		pgx.QueryExecModeSimpleProtocol,
	} {
		alone(ctx, where, mode)
	}
	batch(ctx, where)
	for _, driver := range []string{"pgx", "postgres"} {
		through(ctx, driver, where)
	}
	zone(ctx, where)
	copies(ctx, where)
	series(ctx, where)
	fmt.Println("done")
}

// A connection of pgx, in one of its ways to send statements.
func alone(ctx context.Context, where string, mode pgx.QueryExecMode) {
	config := must(pgx.ParseConfig(where))
	config.DefaultQueryExecMode = mode
	conn := must(pgx.ConnectConfig(ctx, config))
	defer conn.Close(ctx)

	var at time.Time
	var id, name string
	var speed float64
	var ok bool
	var n int64
	for range 3 {
		row := conn.QueryRow(ctx, "SELECT time, id, speed, name, ok, n FROM cars WHERE id = $1", "seen")
		if err := row.Scan(&at, &id, &speed, &name, &ok, &n); err != nil {
			panic(fmt.Sprintf("%v: %v", mode, err))
		}
		check(at.UTC(), first)
		check([]any{id, speed, name, ok, n}, []any{"seen", 1.5, "x", true, int64(4)})
	}
	var count int64
	check(conn.QueryRow(ctx, "SELECT count(*) FROM cars WHERE time <= $1 AND speed > $2", first, 1.0).Scan(&count), nil)
	check(count, int64(1))
	rows := must(conn.Query(ctx, "SELECT id FROM cars ORDER BY time"))
	check(must(pgx.CollectRows(rows, pgx.RowTo[string])), []string{"seen", "other"})

	_, err := conn.Exec(ctx, "SELECT spede FROM cars")
	var told *pgconn.PgError
	if !errors.As(err, &told) {
		panic(err)
	}
	check(told.Code, "42703")
	check(conn.Ping(ctx), nil)

	tag := must(conn.Exec(ctx, "INSERT INTO written (time, id, v) VALUES ($1, $2, $3)", first, "go", 1.25))
	check(tag.RowsAffected(), int64(1))
	var v float64
	check(conn.QueryRow(ctx, "SELECT v FROM written WHERE id = $1", "go").Scan(&v), nil)
	check(v, 1.25)
	must(conn.Exec(ctx, "DELETE FROM written WHERE id = 'go'"))

	// The driver asks the server to end what the context no longer waits for, over a connection of its own.
	short, end := context.WithTimeout(ctx, 200*time.Millisecond)
	defer end()
	_, err = conn.Exec(short, "SELECT sum(a.g * b.g) FROM generate_series(1, 100000) AS a(g), generate_series(1, 100000) AS b(g)")
	if err == nil || short.Err() == nil {
		panic(fmt.Sprintf("it must end early: %v", err))
	}
}

// Several statements sent before the first answer is read.
func batch(ctx context.Context, where string) {
	conn := must(pgx.Connect(ctx, where))
	defer conn.Close(ctx)
	var asked pgx.Batch
	var ids []string
	var count int64
	for _, id := range []string{"seen", "other"} {
		asked.Queue("SELECT id FROM cars WHERE id = $1", id).QueryRow(func(row pgx.Row) error {
			var id string
			err := row.Scan(&id)
			ids = append(ids, id)
			return err
		})
	}
	asked.Queue("SELECT count(*) FROM cars").QueryRow(func(row pgx.Row) error { return row.Scan(&count) })
	check(conn.SendBatch(ctx, &asked).Close(), nil)
	check(ids, []string{"seen", "other"})
	check(count, int64(2))
}

// The pool of the standard library over a driver.
func through(ctx context.Context, driver, where string) {
	db := must(sql.Open(driver, where))
	defer db.Close()
	check(db.PingContext(ctx), nil)
	statement := must(db.PrepareContext(ctx, "SELECT id, speed, raw FROM cars WHERE speed >= $1 ORDER BY time"))
	defer statement.Close()
	for range 2 {
		rows := must(statement.QueryContext(ctx, 2.0))
		var id string
		var speed float64
		var raw []byte
		for rows.Next() {
			check(rows.Scan(&id, &speed, &raw), nil)
		}
		check(rows.Err(), nil)
		check([]any{id, speed, raw}, []any{"other", 2.5, []byte{0, 255}})
	}
	tx := must(db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true}))
	var count int64
	check(tx.QueryRowContext(ctx, "SELECT count(*) FROM cars").Scan(&count), nil)
	check(count, int64(2))
	check(tx.Commit(), nil)
	_, err := db.ExecContext(ctx, "SELECT 1 FROM nothere")
	var code string
	if told := (*pgconn.PgError)(nil); errors.As(err, &told) {
		code = told.Code
	} else if told := (*pq.Error)(nil); errors.As(err, &told) {
		code = string(told.Code)
	}
	check(code, "42P01")
}

// Rows in the binary form, as pgx sends them.
func copies(ctx context.Context, where string) {
	conn := must(pgx.Connect(ctx, where))
	defer conn.Close(ctx)
	must(conn.Exec(ctx, "CREATE TABLE copied (time TIMESTAMP, id TAG, v DOUBLE, n BIGINT, u BIGINT UNSIGNED, ok BOOLEAN, note TEXT, raw BYTEA)"))
	columns := []string{"time", "id", "v", "n", "u", "ok", "note", "raw"}
	row := func(i int) []any {
		row := []any{first.Add(time.Duration(i) * time.Second), "go", float64(i) / 4, int64(-i), int64(i), i%2 == 0, "ä\t", []byte{0, 255}}
		if i == 7 {
			for column := 2; column < len(row); column++ {
				row[column] = nil
			}
		}
		return row
	}
	const count = 3000
	copied := must(conn.CopyFrom(ctx, pgx.Identifier{"public", "copied"}, columns, pgx.CopyFromSlice(count, func(i int) ([]any, error) { return row(i), nil })))
	check(copied, int64(count))
	rows := must(conn.Query(ctx, "SELECT time, v, n, u::bigint, ok, note, raw FROM copied ORDER BY time LIMIT 9"))
	i := 0
	for rows.Next() {
		var at time.Time
		var v *float64
		var n, u *int64
		var ok *bool
		var note *string
		var raw []byte
		check(rows.Scan(&at, &v, &n, &u, &ok, &note, &raw), nil)
		check(at.UTC(), first.Add(time.Duration(i)*time.Second))
		if i == 7 {
			check(v == nil && n == nil && u == nil && ok == nil && note == nil && raw == nil, true)
		} else {
			check([]any{*v, *n, *u, *ok, *note, raw}, []any{float64(i) / 4, int64(-i), int64(i), i%2 == 0, "ä\t", []byte{0, 255}})
		}
		i++
	}
	check(rows.Err(), nil)
	check(i, 9)
	// A row that does not fit: nothing of the copy is stored, and the session goes on.
	_, err := conn.CopyFrom(ctx, pgx.Identifier{"copied"}, []string{"id", "v"}, pgx.CopyFromSlice(2, func(i int) ([]any, error) {
		if i == 1 {
			return nil, errors.New("no more")
		}
		return []any{"late", 1.0}, nil
	}))
	check(err != nil, true)
	var n int64
	check(conn.QueryRow(ctx, "SELECT count(*) FROM copied").Scan(&n), nil)
	check(n, int64(count))
	must(conn.Exec(ctx, "DROP TABLE copied"))
}

// By the clocks of the client's zone.
func zone(ctx context.Context, where string) {
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeSimpleProtocol} {
		config := must(pgx.ParseConfig(where))
		config.RuntimeParams["timezone"] = "Europe/Berlin"
		config.DefaultQueryExecMode = mode
		conn := must(pgx.ConnectConfig(ctx, config))
		check(conn.PgConn().ParameterStatus("TimeZone"), "Europe/Berlin")
		var at time.Time
		check(conn.QueryRow(ctx, "SELECT time FROM cars WHERE time = '2023-11-14 23:13:20'").Scan(&at), nil)
		check(at.UTC(), first)
		check(conn.Close(ctx), nil)
	}
}

// What the macros of Grafana's data source become, as it sends them: as simple statements.
func series(ctx context.Context, where string) {
	config := must(pgx.ParseConfig(where))
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	conn := must(pgx.ConnectConfig(ctx, config))
	defer conn.Close(ctx)
	rows := must(conn.Query(ctx, `SELECT floor(extract(epoch from time)/60)*60 AS "time", id AS metric, avg(speed) AS speed
FROM cars WHERE time BETWEEN '2023-11-14T22:00:00Z' AND '2023-11-14T23:00:00Z' GROUP BY 1, 2 ORDER BY 1, 2`))
	type point struct {
		Time   float64
		Metric string
		Speed  float64
	}
	check(must(pgx.CollectRows(rows, pgx.RowToStructByPos[point])), []point{{1699999980, "other", 2.5}, {1699999980, "seen", 1.5}})
	// Its test of a connection.
	check(conn.Ping(ctx), nil)
	result := conn.PgConn().Exec(ctx, "SELECT 1; SELECT 2")
	answers := must(result.ReadAll())
	check(len(answers), 2)
	check(string(answers[1].Rows[0][0]), "2")
}
