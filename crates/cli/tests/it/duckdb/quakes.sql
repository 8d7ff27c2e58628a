-- Statements that Headwater and DuckDB must answer alike, about earthquakes (../shared/data, where it lies beside the repository): texts,
-- many absent values, equal times kept.
SELECT count(*), count(mag), count(nst), count(DISTINCT id) FROM quakes;
SELECT net, count(*), max(mag) FROM quakes GROUP BY net ORDER BY net;
SELECT type, count(*) FROM quakes GROUP BY type ORDER BY type NULLS LAST;
SELECT "magType", count(*), avg(mag), stddev(mag) FROM quakes GROUP BY "magType" ORDER BY "magType" NULLS LAST;
SELECT min(time), max(time), min(mag), max(depth) FROM quakes;
SELECT date_bin(INTERVAL '1 day', time) AS day, count(*), max(mag) FROM quakes GROUP BY day ORDER BY day;
SELECT net, time_bucket(INTERVAL '12 hours', time) AS t, count(*) FROM quakes WHERE net IN ('ak', 'ci') GROUP BY net, t ORDER BY net, t;
SELECT count(*) FROM quakes WHERE place LIKE '%Alaska%';
SELECT count(*) FROM quakes WHERE place ILIKE '%california%' AND mag > 2;
SELECT count(*) FROM quakes WHERE mag > 5 AND depth < 50;
SELECT id, max(mag) AS m FROM quakes WHERE mag > 5.5 GROUP BY id ORDER BY m DESC, id;
SELECT count(*) FROM quakes WHERE gap IS NULL OR nst IS NULL;
SELECT status, count(*), count(DISTINCT net) FROM quakes GROUP BY status ORDER BY status;
SELECT floor(mag) AS m, count(*), avg(depth) FROM quakes WHERE mag IS NOT NULL GROUP BY m ORDER BY m;
SELECT upper(substr(place, 1, 3)), count(*) AS n FROM quakes WHERE place IS NOT NULL GROUP BY 1 ORDER BY n DESC, 1 LIMIT 20;
SELECT count(*) FROM quakes WHERE sqrt(power(latitude, 2) + power(longitude, 2)) < 60;
SELECT net, avg(rms), var_pop(rms) FROM quakes WHERE rms IS NOT NULL GROUP BY net ORDER BY net;
SELECT count(DISTINCT time) FROM quakes;
SELECT regexp_replace(id, '[0-9]', '', 'g') AS letters, count(*) AS n FROM quakes GROUP BY letters ORDER BY n DESC, letters LIMIT 15;
SELECT length(place) AS l, count(*) FROM quakes GROUP BY l ORDER BY l NULLS LAST;
WITH big AS (SELECT DISTINCT id, net FROM quakes WHERE mag >= 4.5) SELECT net, count(*) FROM big GROUP BY net ORDER BY net;
SELECT CASE WHEN mag >= 6 THEN 'strong' WHEN mag >= 4 THEN 'light' ELSE 'minor' END AS kind, count(*), avg(gap) FROM quakes WHERE mag IS NOT NULL GROUP BY kind ORDER BY kind;
