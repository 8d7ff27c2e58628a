-- Statements that Headwater and DuckDB must answer alike, about a year of hourly weather at three airports
-- (data/weather_nyc_2013.csv.gz). Rows are compared in their order, so every statement with several rows orders them by something unique.

-- Counts and aggregates of everything.
SELECT count(*) FROM weather;
SELECT count(temp), count(wind_gust), count(pressure) FROM weather;
SELECT min(temp), max(temp), avg(temp), sum(temp) FROM weather;
SELECT min(month), max(month), sum(month), avg(month) FROM weather;
SELECT stddev(temp), stddev_pop(temp), var_samp(temp), var_pop(temp) FROM weather;
SELECT min(time), max(time) FROM weather;
SELECT count(DISTINCT origin), count(DISTINCT wind_dir) FROM weather;
SELECT median(temp) FROM weather;
SELECT corr(temp, dewp), covar_pop(temp, dewp), covar_samp(temp, humid) FROM weather;
SELECT bool_and(temp > 0), bool_or(temp > 99) FROM weather;
SELECT min(origin), max(origin) FROM weather;
SELECT sum(precip), max(precip) FROM weather WHERE precip > 0;
SELECT count(*) FILTER (WHERE temp > 80), count(*) FILTER (WHERE temp < 20) FROM weather;
SELECT avg(temp - dewp), max(temp - dewp) FROM weather;

-- By tag.
SELECT origin, count(*) FROM weather GROUP BY origin ORDER BY origin;
SELECT origin, min(temp), avg(temp), max(temp) FROM weather GROUP BY origin ORDER BY origin;
SELECT origin, avg(wind_speed) AS speed FROM weather GROUP BY origin ORDER BY speed DESC;
SELECT origin, count(wind_gust) FROM weather GROUP BY origin HAVING count(wind_gust) > 1000 ORDER BY origin;
SELECT DISTINCT origin FROM weather ORDER BY origin;
SELECT origin, stddev_samp(pressure) FROM weather GROUP BY origin ORDER BY 1;
SELECT upper(origin), lower(origin), length(origin), count(*) FROM weather GROUP BY origin ORDER BY origin;
SELECT origin || '-' || month, max(temp) FROM weather GROUP BY origin, month ORDER BY origin, month;
SELECT count(*) FROM weather WHERE origin = 'EWR';
SELECT count(*) FROM weather WHERE origin <> 'EWR';
SELECT count(*) FROM weather WHERE origin IN ('EWR', 'LGA');
SELECT count(*) FROM weather WHERE origin NOT IN ('EWR', 'LGA');
SELECT count(*) FROM weather WHERE origin LIKE '%K';
SELECT count(*) FROM weather WHERE origin LIKE '_G_';
SELECT count(*) FROM weather WHERE origin > 'F';
SELECT count(*) FROM weather WHERE origin = 'nowhere';
SELECT max(temp) FROM weather WHERE origin = 'nowhere';

-- Ranges of time.
SELECT count(*), avg(temp) FROM weather WHERE time >= TIMESTAMP '2013-07-01 00:00:00' AND time < TIMESTAMP '2013-08-01 00:00:00';
SELECT count(*), avg(temp) FROM weather WHERE time BETWEEN TIMESTAMP '2013-07-04 00:00:00' AND TIMESTAMP '2013-07-05 00:00:00' AND origin = 'JFK';
SELECT time, temp FROM weather WHERE origin = 'JFK' AND time >= TIMESTAMP '2013-07-04 00:00:00' AND time < TIMESTAMP '2013-07-05 00:00:00' ORDER BY time;
SELECT time, temp, wind_gust FROM weather WHERE origin = 'LGA' ORDER BY time LIMIT 20;
SELECT time, temp FROM weather WHERE origin = 'LGA' ORDER BY time DESC LIMIT 20;
SELECT time, origin, humid FROM weather WHERE time = TIMESTAMP '2013-07-04 12:00:00' ORDER BY origin;
SELECT count(*) FROM weather WHERE time > TIMESTAMP '2013-12-30 00:00:00' OR time < TIMESTAMP '2013-01-02 00:00:00';
SELECT count(*) FROM weather WHERE time >= TIMESTAMP '2014-06-01 00:00:00';
SELECT count(*) FROM weather WHERE NOT (time < TIMESTAMP '2013-06-01 00:00:00');
SELECT date_part('epoch', max(time)) - date_part('epoch', min(time)) FROM weather;
SELECT count(*) FROM weather WHERE time >= TIMESTAMP '2013-06-01 00:00:00' + INTERVAL '12 hours' AND time < TIMESTAMP '2013-06-02 00:00:00';
SELECT origin, time FROM weather WHERE time >= TIMESTAMP '2013-05-05 05:00:00' AND time <= TIMESTAMP '2013-05-05 07:00:00' ORDER BY time, origin;

-- Bins of time.
SELECT date_bin(INTERVAL '1 day', time) AS day, avg(temp) FROM weather GROUP BY day ORDER BY day;
SELECT date_bin(INTERVAL '1 day', time) AS day, origin, min(temp), max(temp), count(*) FROM weather GROUP BY day, origin ORDER BY day, origin;
SELECT time_bucket(INTERVAL '6 hours', time) AS t, avg(wind_speed), stddev(wind_speed) FROM weather WHERE origin = 'JFK' GROUP BY t ORDER BY t LIMIT 100;
SELECT time_bucket(INTERVAL '1 hour', time) AS t, count(*) FROM weather WHERE time < TIMESTAMP '2013-01-03 00:00:00' GROUP BY t ORDER BY t;
SELECT time_bucket(INTERVAL '12 hours', time) AS t, sum(precip) AS rain FROM weather GROUP BY t HAVING sum(precip) > 1 ORDER BY t;
SELECT date_trunc('month', time) AS month, avg(temp), max(wind_gust) FROM weather GROUP BY 1 ORDER BY 1;
SELECT date_trunc('day', time) AS day, max(temp) - min(temp) AS span FROM weather WHERE origin = 'EWR' GROUP BY 1 ORDER BY span DESC, day LIMIT 10;
SELECT date_trunc('hour', time), count(*) FROM weather WHERE time < TIMESTAMP '2013-01-02 00:00:00' GROUP BY 1 ORDER BY 1;
SELECT date_trunc('year', time), count(*) FROM weather GROUP BY 1 ORDER BY 1;
SELECT extract(hour FROM time) AS h, avg(temp) FROM weather GROUP BY h ORDER BY h;
SELECT extract(month FROM time) AS m, origin, avg(humid) FROM weather GROUP BY m, origin ORDER BY m, origin;
SELECT extract(dow FROM time) AS d, count(*) FROM weather GROUP BY d ORDER BY d;
SELECT extract(doy FROM time) AS d, max(temp) FROM weather GROUP BY d ORDER BY d LIMIT 50;
SELECT date_part('quarter', time) AS q, sum(precip) FROM weather GROUP BY q ORDER BY q;
SELECT date_part('week', time) AS w, avg(pressure) FROM weather GROUP BY w ORDER BY w;
SELECT date_part('year', time) AS y, count(*) FROM weather GROUP BY y ORDER BY y;

-- Values.
SELECT time, origin, temp FROM weather WHERE temp > 98 ORDER BY time, origin;
SELECT time, origin, temp FROM weather WHERE temp >= 98 AND humid < 40 ORDER BY temp DESC, time, origin;
SELECT count(*) FROM weather WHERE wind_gust IS NULL;
SELECT count(*) FROM weather WHERE wind_gust IS NOT NULL AND wind_gust > 40;
SELECT count(*) FROM weather WHERE temp BETWEEN 50 AND 60;
SELECT count(*) FROM weather WHERE visib = 10;
SELECT count(*) FROM weather WHERE visib <> 10;
SELECT count(*) FROM weather WHERE wind_dir IN (0, 90, 180, 270);
SELECT count(*) FROM weather WHERE temp > 80 OR wind_speed > 30;
SELECT count(*) FROM weather WHERE NOT (temp > 80) AND precip > 0;
SELECT count(*) FROM weather WHERE temp < dewp + 1;
SELECT count(*) FROM weather WHERE (temp - 32) * 5 / 9 > 30;
SELECT origin, time, wind_gust FROM weather WHERE wind_gust > 45 ORDER BY wind_gust DESC, time, origin;
SELECT wind_dir, count(*) FROM weather GROUP BY wind_dir ORDER BY wind_dir NULLS LAST;
SELECT month, hour, count(*) FROM weather WHERE origin = 'JFK' AND month = 2 GROUP BY month, hour ORDER BY hour;
SELECT month % 3 AS r, count(*) FROM weather GROUP BY r ORDER BY r;
SELECT count(*) FROM weather WHERE month * 100 + hour > 1200;

-- Expressions.
SELECT round(avg((temp - 32) * 5 / 9), 3) FROM weather;
SELECT abs(min(temp - 60)), sqrt(max(temp)), power(min(visib) + 2, 3), exp(1), ln(max(pressure)) FROM weather;
SELECT floor(avg(temp)), ceil(avg(temp)), round(avg(temp)) FROM weather;
SELECT sin(radians(avg(wind_dir))), cos(radians(avg(wind_dir))), atan2(1.0, 2.0) FROM weather;
SELECT greatest(max(temp), max(dewp)), least(min(temp), min(dewp)) FROM weather;
SELECT avg(coalesce(wind_gust, wind_speed)) FROM weather;
SELECT count(nullif(precip, 0)) FROM weather;
SELECT CASE WHEN temp < 32 THEN 'frost' WHEN temp < 70 THEN 'mild' ELSE 'warm' END AS kind, count(*) FROM weather WHERE temp IS NOT NULL GROUP BY kind ORDER BY kind;
SELECT CAST(temp AS INTEGER) AS t, count(*) FROM weather WHERE temp = floor(temp) GROUP BY t ORDER BY t;
SELECT CAST(month AS DOUBLE) / 4, count(*) FROM weather GROUP BY 1 ORDER BY 1;
SELECT substr(origin, 1, 1) AS letter, count(*) FROM weather GROUP BY letter ORDER BY letter;
SELECT replace(origin, 'W', 'w'), reverse(origin), left(origin, 2), right(origin, 1) FROM weather WHERE time = TIMESTAMP '2013-07-04 12:00:00' ORDER BY origin;
SELECT concat(origin, '/', CAST(month AS VARCHAR)), count(*) FROM weather WHERE month < 3 GROUP BY origin, month ORDER BY origin, month;
SELECT strpos(origin, 'F'), lpad(origin, 5, '.'), repeat(origin, 2), count(*) FROM weather GROUP BY origin ORDER BY origin;
SELECT string_agg(origin, ',' ORDER BY origin) FROM (SELECT DISTINCT origin FROM weather);

-- Windows.
SELECT time, temp, lag(temp) OVER (ORDER BY time), lead(temp, 2) OVER (ORDER BY time) FROM weather WHERE origin = 'JFK' AND month = 3 ORDER BY time LIMIT 50;
SELECT time, avg(temp) OVER (ORDER BY time ROWS BETWEEN 23 PRECEDING AND CURRENT ROW) FROM weather WHERE origin = 'EWR' AND month = 4 ORDER BY time;
SELECT origin, time, row_number() OVER (PARTITION BY origin ORDER BY time) AS n FROM weather WHERE month = 1 AND time < TIMESTAMP '2013-01-02 00:00:00' ORDER BY origin, time;
SELECT day, top, rank() OVER (ORDER BY top DESC) FROM (SELECT date_trunc('month', time) AS day, max(temp) AS top FROM weather GROUP BY 1) ORDER BY day;
SELECT origin, time, sum(precip) OVER (PARTITION BY origin ORDER BY time) FROM weather WHERE month = 6 AND precip > 0.2 ORDER BY origin, time;
SELECT time, temp, first_value(temp) OVER (ORDER BY time), max(temp) OVER (ORDER BY time) FROM weather WHERE origin = 'LGA' AND month = 9 ORDER BY time LIMIT 48;
SELECT DISTINCT ntile(4) OVER (ORDER BY time, origin) AS q FROM weather ORDER BY q;
SELECT origin, time, temp FROM (SELECT origin, time, temp, row_number() OVER (PARTITION BY origin ORDER BY temp DESC NULLS LAST, time) AS n FROM weather) WHERE n <= 3 ORDER BY origin, temp DESC, time;

-- Joins, subqueries, sets.
SELECT count(*) FROM weather a JOIN weather b ON a.time = b.time AND a.origin = 'JFK' AND b.origin = 'EWR';
SELECT avg(a.temp - b.temp), max(abs(a.temp - b.temp)) FROM weather a JOIN weather b ON a.time = b.time WHERE a.origin = 'JFK' AND b.origin = 'LGA';
SELECT a.time, a.temp, b.temp FROM weather a LEFT JOIN weather b ON a.time = b.time AND b.origin = 'JFK' AND b.temp > 90 WHERE a.origin = 'EWR' AND a.temp > 93 ORDER BY a.time;
SELECT time, origin FROM weather WHERE temp = (SELECT max(temp) FROM weather) ORDER BY time, origin;
SELECT count(*) FROM weather WHERE temp > (SELECT avg(temp) FROM weather);
SELECT origin, count(*) FROM weather w WHERE temp > (SELECT avg(temp) FROM weather v WHERE v.origin = w.origin) GROUP BY origin ORDER BY origin;
SELECT count(*) FROM weather WHERE time IN (SELECT time FROM weather WHERE origin = 'JFK' AND temp > 90);
SELECT count(*) FROM weather a WHERE origin = 'EWR' AND NOT EXISTS (SELECT 1 FROM weather b WHERE b.origin = 'JFK' AND b.time = a.time);
WITH daily AS (SELECT origin, date_trunc('day', time) AS day, avg(temp) AS mean FROM weather GROUP BY 1, 2) SELECT origin, max(mean), min(mean), count(*) FROM daily GROUP BY origin ORDER BY origin;
WITH hot AS (SELECT * FROM weather WHERE temp > 95), wet AS (SELECT * FROM weather WHERE precip > 0.5) SELECT (SELECT count(*) FROM hot) AS hot, (SELECT count(*) FROM wet) AS wet;
SELECT origin FROM weather WHERE month = 1 UNION SELECT origin FROM weather WHERE month = 2 ORDER BY origin;
SELECT month FROM weather WHERE temp > 90 EXCEPT SELECT month FROM weather WHERE temp > 97 ORDER BY month;
SELECT month FROM weather WHERE temp > 90 INTERSECT SELECT month FROM weather WHERE precip > 0.5 ORDER BY month;
SELECT 'hot' AS kind, count(*) FROM weather WHERE temp > 90 UNION ALL SELECT 'cold', count(*) FROM weather WHERE temp < 15 ORDER BY kind;
SELECT origin, month, avg(temp) FROM weather GROUP BY ROLLUP (origin, month) ORDER BY origin NULLS LAST, month NULLS LAST;
SELECT origin, month, count(*) FROM weather WHERE month < 3 GROUP BY CUBE (origin, month) ORDER BY origin NULLS LAST, month NULLS LAST;
SELECT m.month, m.mean - y.mean FROM (SELECT month, avg(temp) AS mean FROM weather GROUP BY month) m CROSS JOIN (SELECT avg(temp) AS mean FROM weather) y ORDER BY m.month;
SELECT temp, count(*) AS n FROM weather WHERE temp IS NOT NULL GROUP BY temp ORDER BY n DESC, temp LIMIT 5 OFFSET 3;
SELECT * FROM weather WHERE time = TIMESTAMP '2013-07-04 12:00:00' ORDER BY origin;
SELECT v.n * 10, count(*) FROM weather JOIN (VALUES (1), (2), (3)) AS v(n) ON month = v.n GROUP BY v.n ORDER BY v.n;

-- The nearest row of another query, and buckets by the calendar and with an offset.
SELECT w.origin, w.month, count(*), sum(g.wind_gust), min(g.time) FROM weather w ASOF JOIN (SELECT origin, time, wind_gust FROM weather WHERE wind_gust IS NOT NULL) g ON w.origin = g.origin AND w.time >= g.time GROUP BY w.origin, w.month ORDER BY w.origin, w.month;
SELECT w.origin, w.month, count(*), count(g.time), sum(g.wind_gust) FROM weather w ASOF LEFT JOIN (SELECT origin, time, wind_gust FROM weather WHERE wind_gust IS NOT NULL) g ON w.origin = g.origin AND w.time > g.time GROUP BY w.origin, w.month ORDER BY w.origin, w.month;
SELECT w.origin, w.month, count(*), count(g.time), sum(g.wind_gust) FROM weather w ASOF LEFT JOIN (SELECT origin, time, wind_gust FROM weather WHERE wind_gust IS NOT NULL) g ON w.origin = g.origin AND w.time <= g.time GROUP BY w.origin, w.month ORDER BY w.origin, w.month;
SELECT w.origin, count(*), sum(g.temp - w.temp) FROM weather w ASOF JOIN weather g ON w.origin = g.origin AND w.time < g.time GROUP BY w.origin ORDER BY w.origin;
SELECT count(*), max(g.time) FROM weather w ASOF JOIN (SELECT time FROM weather WHERE precip > 1) g ON w.time >= g.time;
SELECT time_bucket(INTERVAL '1 month', time) AS t, count(*), avg(temp) FROM weather GROUP BY t ORDER BY t;
SELECT time_bucket(INTERVAL '3 months', time) AS t, count(*), max(temp) FROM weather GROUP BY t ORDER BY t;
SELECT time_bucket(INTERVAL '1 day', time, INTERVAL '6 hours') AS t, count(*), min(temp) FROM weather GROUP BY t ORDER BY t;
SELECT origin, percentile_cont(0.9) WITHIN GROUP (ORDER BY temp) FROM weather GROUP BY origin ORDER BY origin;
