package headwater

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

// doorCase is a case of tests/doors/cases.json, which every door through which rows come in is taken through.
type doorCase struct {
	Name     string
	Needs    []string
	Requests []struct {
		Rows     []doorRow
		Refused  map[int]string
		Replaced int
	}
}

// doorRow is a row of a case.
type doorRow struct {
	table  string
	tags   Tags
	nanos  int64
	fields map[string]any
}

// UnmarshalJSON reads [table, tags, milliseconds since 2024, fields].
func (r *doorRow) UnmarshalJSON(text []byte) error {
	var ms *int64
	var fields map[string]string
	parts := []any{&r.table, &r.tags, &ms, &fields}
	if err := json.Unmarshal(text, &parts); err != nil {
		return err
	}
	if ms != nil {
		r.nanos = (1_704_067_200_000 + *ms) * 1_000_000
	}
	r.fields = map[string]any{}
	for name, value := range fields {
		kind, text, _ := strings.Cut(value, ":")
		var err error
		switch kind {
		case "f":
			r.fields[name], err = strconv.ParseFloat(text, 64)
		case "i":
			r.fields[name], err = strconv.ParseInt(text, 10, 64)
		case "u":
			r.fields[name], err = strconv.ParseUint(text, 10, 64)
		case "b":
			r.fields[name], err = strconv.ParseBool(text)
		case "s":
			r.fields[name] = text
		default:
			err = fmt.Errorf("no value begins with %q", kind)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func doorValue(field string, value any) Value {
	switch v := value.(type) {
	case float64:
		return Float64(field, v)
	case int64:
		return Int64(field, v)
	case uint64:
		return Uint64(field, v)
	case bool:
		return Bool(field, v)
	default:
		return String(field, v.(string))
	}
}

// doorTable is what must be there of a table: its fields' types, and rows by stream and time.
type doorTable struct {
	fields map[string]string
	rows   map[string]map[int64]map[string]any
}

func (t *doorTable) store(row *doorRow) {
	names := map[reflect.Kind]string{
		reflect.Float64: "f64", reflect.Int64: "i64", reflect.Uint64: "u64", reflect.Bool: "bool", reflect.String: "string",
	}
	stream := streamName(row.table, row.tags)
	if t.rows[stream] == nil {
		t.rows[stream] = map[int64]map[string]any{}
	}
	if t.rows[stream][row.nanos] == nil {
		t.rows[stream][row.nanos] = map[string]any{}
	}
	for name, value := range row.fields {
		typ := names[reflect.TypeOf(value).Kind()]
		if known := t.fields[name]; known == "" || known == "i64" && typ == "f64" {
			t.fields[name] = typ
		}
		t.rows[stream][row.nanos][name] = value
	}
	for _, rows := range t.rows {
		for _, values := range rows {
			for name, value := range values {
				if v, ok := value.(int64); ok && t.fields[name] == "f64" {
					values[name] = float64(v)
				}
			}
		}
	}
}

func doorCases(t *testing.T) []doorCase {
	text, err := os.ReadFile("../../tests/doors/cases.json")
	must(t, err)
	var file struct{ Cases []doorCase }
	must(t, json.Unmarshal(text, &file))
	return file.Cases
}

func TestBatchesAreTakenAsEveryDoorTakesRows(t *testing.T) {
	walked := 0
	for _, c := range doorCases(t) {
		// A batch has times.
		if strings.Contains(strings.Join(c.Needs, ","), "no times") {
			continue
		}
		walked++
		for _, all := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/all=%v", c.Name, all), func(t *testing.T) { walkDoor(t, &c, all) })
		}
	}
	if walked < 20 {
		t.Fatalf("%d cases", walked)
	}
}

func walkDoor(t *testing.T, c *doorCase, all bool) {
	dir := t.TempDir() + "/db"
	db, err := Open(dir, MaxFuture(time.Hour))
	must(t, err)
	wanted := map[string]*doorTable{}
	for _, request := range c.Requests {
		var batch Batch
		for i := range request.Rows {
			row := &request.Rows[i]
			var values []Value
			for name, value := range row.fields {
				values = append(values, doorValue(name, value))
			}
			// A refused row of another type than its neighbours comes in a batch entry of its own.
			must(t, batch.RowAt(streamOf(t, db, row.table, row.tags), row.nanos, values...))
			_, refused := request.Refused[i]
			if refused || all && len(request.Refused) > 0 {
				continue
			}
			if wanted[row.table] == nil {
				wanted[row.table] = &doorTable{map[string]string{}, map[string]map[int64]map[string]any{}}
			}
			wanted[row.table].store(row)
		}
		if all {
			batch.RequireAll()
		}
		written, err := db.Write(t.Context(), &batch)
		if len(request.Refused) == 0 {
			must(t, err)
			if written.Accepted != len(request.Rows) || written.Replaced != request.Replaced {
				t.Fatalf("%+v", written)
			}
			continue
		}
		var refused *RefusedError
		if !errors.As(err, &refused) {
			t.Fatalf("expected refused rows, found %v", err)
		}
		for _, one := range refused.Rows {
			found := false
			for _, code := range request.Refused {
				found = found || code == one.Code
			}
			if !found {
				t.Fatalf("%+v", one)
			}
		}
		if !all && refused.Total != len(request.Refused) {
			t.Fatalf("%d rows were refused", refused.Total)
		}
	}
	must(t, db.Close())
	compareDoor(t, opened(t, dir), wanted)
}

func compareDoor(t *testing.T, db *DB, wanted map[string]*doorTable) {
	tables, err := db.Tables()
	must(t, err)
	if len(tables) != len(wanted) {
		t.Fatalf("%d tables, expected %d: %+v", len(tables), len(wanted), tables)
	}
	for _, table := range tables {
		want := wanted[table.Name]
		if want == nil || int(table.Streams) != len(want.rows) {
			t.Fatalf("%+v", table)
		}
		fields := map[string]string{}
		for _, field := range table.Fields {
			fields[field.Name] = field.Type
		}
		if !reflect.DeepEqual(fields, want.fields) {
			t.Fatalf("%v, expected %v", fields, want.fields)
		}
		for name, rows := range want.rows {
			stream, err := db.ParseStream(name)
			must(t, err)
			found := map[int64]map[string]any{}
			for row, err := range db.Scan(t.Context(), stream, Query{}) {
				must(t, err)
				values := map[string]any{}
				for field := range fields {
					if v := row.Value(field); v != nil {
						values[field] = v
					}
				}
				found[row.Nanos()] = values
			}
			if !reflect.DeepEqual(found, rows) {
				t.Fatalf("%s: %v, expected %v", name, found, rows)
			}
		}
	}
}
