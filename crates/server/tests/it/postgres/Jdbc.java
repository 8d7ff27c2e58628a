// What programs in Java do over PostgreSQL's protocol, by PostgreSQL's JDBC driver. The argument is the port.
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Timestamp;
import java.time.Instant;
import java.time.LocalDateTime;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.TimeZone;

public class Jdbc {
    static void check(Object got, Object wanted) {
        if (!wanted.equals(got)) {
            throw new AssertionError(got + " is not " + wanted);
        }
    }

    static List<String> column(ResultSet rows, String name) throws SQLException {
        List<String> found = new ArrayList<>();
        while (rows.next()) {
            found.add(rows.getString(name));
        }
        rows.close();
        return found;
    }

    public static void main(String[] args) throws Exception {
        String url = "jdbc:postgresql://127.0.0.1:" + args[0] + "/plant";
        // The second round has the server prepare at once, with answers in the binary form.
        for (String threshold : new String[] {"5", "-1"}) {
            Properties properties = new Properties();
            properties.setProperty("user", "ann");
            properties.setProperty("prepareThreshold", threshold);
            try (Connection c = DriverManager.getConnection(url, properties)) {
                answers(c);
                metadata(c);
                zone(c);
            }
        }
        System.out.println("done");
    }

    static void answers(Connection c) throws SQLException {
        try (PreparedStatement s = c.prepareStatement("SELECT time, id, speed, laps, ok, n FROM cars WHERE id = ? AND time >= ? AND speed > ?")) {
            s.setString(1, "seen");
            s.setTimestamp(2, Timestamp.from(Instant.parse("2023-11-14T00:00:00Z")));
            s.setDouble(3, 1.0);
            ResultSet r = s.executeQuery();
            check(r.next(), true);
            check(r.getObject(1, OffsetDateTime.class).toInstant(), Instant.parse("2023-11-14T22:13:20Z"));
            check(r.getString(2), "seen");
            check(r.getDouble(3), 1.5);
            check(r.getBigDecimal(4).intValueExact(), 3);
            check(r.getBoolean(5), true);
            check(r.getLong(6), 4L);
            check(r.next(), false);
        }
        try (PreparedStatement s = c.prepareStatement("SELECT count(*) FROM cars WHERE time < ?")) {
            s.setObject(1, OffsetDateTime.of(2023, 11, 14, 22, 13, 21, 0, ZoneOffset.UTC));
            ResultSet r = s.executeQuery();
            r.next();
            check(r.getLong(1), 1L);
        }
        // With a fetch size, within what the driver takes for a transaction, rows come in parts.
        c.setAutoCommit(false);
        try (Statement s = c.createStatement()) {
            s.setFetchSize(7);
            ResultSet r = s.executeQuery("SELECT g FROM (SELECT unnest(generate_series(1, 30)) AS g) t ORDER BY g");
            long sum = 0;
            while (r.next()) {
                sum += r.getLong(1);
            }
            check(sum, 465L);
        }
        c.commit();
        c.setAutoCommit(true);
        try (Statement s = c.createStatement()) {
            s.executeQuery("SELECT nope FROM cars");
            throw new AssertionError("it must fail");
        } catch (SQLException e) {
            check(e.getSQLState(), "42703");
        }
        try (PreparedStatement s = c.prepareStatement("INSERT INTO written (time, id, v) VALUES (?, ?, ?)")) {
            for (int n = 0; n < 3; n++) {
                s.setObject(1, OffsetDateTime.of(2024, 1, 2, 0, 0, n, 0, ZoneOffset.UTC));
                s.setString(2, "java");
                s.setDouble(3, n);
                s.addBatch();
            }
            check(s.executeBatch().length, 3);
        }
        try (PreparedStatement s = c.prepareStatement("INSERT INTO written (id, v) VALUES (?, ?)", Statement.RETURN_GENERATED_KEYS)) {
            s.setString(1, "java keys");
            s.setDouble(2, 7);
            check(s.executeUpdate(), 1);
            ResultSet keys = s.getGeneratedKeys();
            check(keys.next(), true);
            Instant made = keys.getObject("time", OffsetDateTime.class).toInstant();
            check(made.isAfter(Instant.parse("2024-01-02T00:00:00Z")), true);
            check(keys.getString("id"), "java keys");
            check(keys.next(), false);
        }
        check(c.isValid(5), true);
    }

    // The driver tells the server the zone of its machine.
    static void zone(Connection c) throws SQLException {
        try (Statement s = c.createStatement()) {
            ResultSet r = s.executeQuery("SHOW TimeZone");
            r.next();
            check(r.getString(1), TimeZone.getDefault().getID());
            r = s.executeQuery("SELECT time FROM cars WHERE time = '2023-11-14 23:13:20'");
            check(r.next(), true);
            check(r.getString(1), "2023-11-14 23:13:20+01");
            check(r.getTimestamp(1).toInstant(), Instant.parse("2023-11-14T22:13:20Z"));
        }
        // What clocks show, of an hour that comes twice too: the later one.
        try (PreparedStatement s = c.prepareStatement("SELECT ?::timestamptz, count(*) FROM cars WHERE time = ?")) {
            s.setString(1, "2024-10-27 02:30:00");
            s.setObject(2, LocalDateTime.of(2023, 11, 14, 23, 13, 20));
            ResultSet r = s.executeQuery();
            r.next();
            check(r.getObject(1, OffsetDateTime.class).toInstant(), Instant.parse("2024-10-27T01:30:00Z"));
            check(r.getLong(2), 1L);
        }
    }

    static void metadata(Connection c) throws SQLException {
        DatabaseMetaData m = c.getMetaData();
        check(m.getDatabaseProductName(), "PostgreSQL");
        check(m.getDatabaseMajorVersion(), 16);
        check(column(m.getTables(null, "public", "%", new String[] {"TABLE"}), "TABLE_NAME"), List.of("Odd Name", "cars", "written"));
        check(column(m.getSchemas(), "TABLE_SCHEM").contains("public"), true);
        check(column(m.getCatalogs(), "TABLE_CAT"), List.of("plant"));
        ResultSet r = m.getColumns(null, "public", "cars", "%");
        List<String> found = new ArrayList<>();
        while (r.next()) {
            found.add(r.getString("COLUMN_NAME") + ":" + r.getString("TYPE_NAME") + ":" + r.getString("IS_NULLABLE"));
        }
        check(found.subList(0, 3), List.of("time:timestamptz:NO", "id:text:YES", "speed:float8:YES"));
        check(column(m.getPrimaryKeys(null, "public", "cars"), "COLUMN_NAME"), List.of());
        check(column(m.getIndexInfo(null, "public", "cars", false, false), "INDEX_NAME"), List.of());
        check(column(m.getImportedKeys(null, "public", "cars"), "FKTABLE_NAME"), List.of());
        check(column(m.getExportedKeys(null, "public", "cars"), "FKTABLE_NAME"), List.of());
        check(column(m.getFunctions(null, "public", "%"), "FUNCTION_NAME"), List.of());
        check(column(m.getProcedures(null, "public", "%"), "PROCEDURE_NAME"), List.of());
        check(column(m.getTableTypes(), "TABLE_TYPE").contains("TABLE"), true);
        check(column(m.getTypeInfo(), "TYPE_NAME").contains("timestamptz"), true);
        check(m.getSQLKeywords() != null, true);
        check(m.getURL().startsWith("jdbc:postgresql:"), true);
    }
}
