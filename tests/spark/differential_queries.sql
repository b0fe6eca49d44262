-- Queries for `test_sql_differential.py`, on tables that are both in a lake and plain Parquet.
-- `geo.regions` and `shop.main.orders` are names with a schema and a lake; plain Spark reads them without.

-- columns, constants and expressions
SELECT * FROM orders; SELECT id, price FROM orders; SELECT o.* FROM orders o; SELECT orders.id FROM orders;
SELECT orders.* FROM orders; SELECT 1 AS one, 'a' AS a FROM orders; SELECT DISTINCT region FROM orders;
SELECT id + 1 AS next, -id AS negative, id % 7 AS rest FROM orders; SELECT price * 2 / 3 AS p FROM orders;
SELECT amount * 1.1 AS a, amount / 3 AS b FROM orders; SELECT concat(region, '-', id) AS k FROM orders;
SELECT CAST(id AS STRING) AS t, CAST(day AS TIMESTAMP) AS d FROM orders; SELECT upper(region), length(note) FROM orders;
SELECT CASE WHEN id > 20 THEN 'high' WHEN id > 10 THEN 'mid' ELSE 'low' END AS level FROM orders;
SELECT if(note IS NULL, 'none', note) AS n, coalesce(note, region) AS c, nullif(region, 'r1') AS f FROM orders;
SELECT date_add(day, 3) AS d, datediff(day, DATE '2024-01-01') AS n, year(day) AS y, month(day) AS m FROM orders;
SELECT date_trunc('month', day) AS m, date_format(day, 'yyyy/MM') AS f FROM orders; SELECT day + INTERVAL 1 MONTH FROM orders;
SELECT tags, size(tags) AS n, tags[0] AS first, array_contains(tags, 't1') AS has FROM orders;
SELECT place, place.city, place.zip + 1 AS z FROM orders; SELECT orders.place.city FROM orders; SELECT place.* FROM orders;
SELECT transform(tags, t -> concat(t, '!')) AS t, filter(tags, t -> t > 't1') AS f FROM orders;
SELECT named_struct('a', id, 'b', region) AS s, map('k', id) AS m, array(id, id + 1) AS a FROM orders;
SELECT struct(id, region).region AS r, to_json(struct(id, region)) AS j FROM orders WHERE id < 3;
SELECT id AS `a b`, region AS `c``d` FROM orders; SELECT '{"a": 1}' AS j, '{{}}' AS k FROM orders LIMIT 1;
SELECT 'it''s' AS a, "double" AS b, r'raw\n' AS c, 'semi;colon' AS d FROM orders LIMIT 1;
SELECT /* orders */ id -- from regions
FROM orders; SELECT `orders`.`id` FROM `orders`; SELECT ID, Region FROM ORDERS; SELECT o.id FROM Orders AS o;
SELECT shop.main.orders.id FROM shop.main.orders; SELECT geo.regions.pop FROM geo.regions;
SELECT hash(region) AS h, md5(region) AS m, xxhash64(id) AS x FROM orders; SELECT id <=> NULL AS n FROM orders;
SELECT try_divide(id, 0) AS d, id DIV 3 AS i, pmod(-id, 5) AS p, round(price, 1) AS r FROM orders;
SELECT split(note, ' ')[0] AS w, regexp_replace(region, 'r', 'R') AS r, substring(region, 2) AS s FROM orders;

-- conditions
SELECT * FROM orders WHERE id = 5; SELECT * FROM orders WHERE id > 5 AND id <= 9; SELECT * FROM orders WHERE 5 < id;
SELECT * FROM orders WHERE region = 'r1'; SELECT * FROM orders WHERE region IN ('r0', 'r2') AND id < 12;
SELECT * FROM orders WHERE region NOT IN ('r0', 'r2'); SELECT * FROM orders WHERE NOT region = 'r1';
SELECT * FROM orders WHERE id BETWEEN 3 AND 6; SELECT * FROM orders WHERE id NOT BETWEEN 3 AND 26;
SELECT * FROM orders WHERE note IS NULL; SELECT * FROM orders WHERE note IS NOT NULL AND note <> 'n1';
SELECT * FROM orders WHERE region = 'r1' OR id = 3; SELECT * FROM orders WHERE region = 'r1' OR price > 20;
SELECT * FROM orders WHERE (region = 'r1' AND id > 3) OR (region = 'r2' AND id < 9);
SELECT * FROM orders WHERE day >= '2024-01-10'; SELECT * FROM orders WHERE day = DATE '2024-01-03';
SELECT * FROM orders WHERE day BETWEEN DATE '2024-01-03' AND DATE '2024-01-05'; SELECT * FROM orders WHERE year(day) = 2024;
SELECT * FROM orders WHERE at >= '2024-01-01 05:00:00'; SELECT * FROM orders WHERE at > TIMESTAMP '2024-01-01 05:00:00';
SELECT * FROM orders WHERE at < DATE '2024-01-02'; SELECT * FROM orders WHERE price > 10.5; SELECT * FROM orders WHERE price = 7.5;
SELECT * FROM orders WHERE amount >= 3.25; SELECT * FROM orders WHERE amount = 2; SELECT * FROM orders WHERE amount < 2.125;
SELECT * FROM orders WHERE price <> 1.5; SELECT * FROM orders WHERE id > 2.5; SELECT * FROM orders WHERE id = '7';
SELECT * FROM orders WHERE note LIKE 'n%'; SELECT * FROM orders WHERE note RLIKE '^n[12]$'; SELECT * FROM orders WHERE true;
SELECT * FROM orders WHERE false; SELECT * FROM orders WHERE id = NULL; SELECT * FROM orders WHERE id <=> 4;
SELECT * FROM orders WHERE -id < -25; SELECT * FROM orders WHERE id = -1; SELECT * FROM orders WHERE id IN (1, 2, NULL);
SELECT * FROM orders WHERE id > 9223372036854775807; SELECT * FROM orders WHERE place.city = 'c1';
SELECT * FROM orders o WHERE o.region = 'r1' AND o.place.zip > 3; SELECT * FROM orders WHERE orders.region = 'r1';
SELECT * FROM orders WHERE region = 'R1'; SELECT * FROM orders WHERE region < 'r1'; SELECT * FROM orders WHERE flag;
SELECT * FROM orders WHERE flag = true AND id > 4; SELECT * FROM orders WHERE NOT flag; SELECT * FROM orders WHERE region = note;

-- groups
SELECT count(*), count(note), count(DISTINCT region) FROM orders; SELECT region, count(*) AS n FROM orders GROUP BY region;
SELECT region, sum(id) AS s, avg(id) AS a, min(day) AS d, max(amount) AS m FROM orders GROUP BY region HAVING count(*) > 9;
SELECT region, flag, sum(amount) AS s FROM orders GROUP BY ROLLUP(region, flag); SELECT region, count(*) FROM orders GROUP BY ALL;
SELECT region, flag, count(*) AS n FROM orders GROUP BY CUBE(region, flag); SELECT id % 3 AS m, count(*) FROM orders GROUP BY 1;
SELECT region, flag, grouping(region) AS g, count(*) AS n FROM orders GROUP BY GROUPING SETS ((region), (flag), ());
SELECT region, count(*) FILTER (WHERE id > 10) AS n, bool_or(flag) AS b FROM orders GROUP BY region;
SELECT region, sort_array(collect_set(id % 4)) AS s FROM orders GROUP BY region; SELECT max(id) FROM orders WHERE id < 0;
SELECT max_by(region, id) AS r, percentile(id, 0.5) AS p, stddev_pop(id) AS s FROM orders; SELECT every(id > 0) FROM orders;
SELECT approx_count_distinct(region) AS n FROM orders WHERE region = 'r1'; SELECT sum(id) AS s FROM orders HAVING sum(id) > 1;

-- joins
SELECT o.id, r.pop FROM orders o JOIN geo.regions r ON o.region = r.region;
SELECT orders.id, regions.pop FROM orders JOIN geo.regions ON orders.region = regions.region WHERE regions.pop > 0;
SELECT * FROM orders JOIN geo.regions USING (region) WHERE pop = 1; SELECT * FROM orders NATURAL JOIN geo.regions;
SELECT o.id, r.pop FROM orders o LEFT JOIN geo.regions r ON o.region = r.region AND r.pop > 0;
SELECT o.id, r.pop FROM orders o LEFT JOIN geo.regions r ON o.region = r.region AND r.pop > 0 WHERE r.pop IS NULL;
SELECT o.id, r.pop FROM orders o LEFT JOIN geo.regions r ON o.region = r.region WHERE r.pop = 1;
SELECT o.id, r.region FROM orders o RIGHT JOIN geo.regions r ON o.region = r.region WHERE o.id IS NULL;
SELECT o.id, r.region FROM orders o RIGHT JOIN geo.regions r ON o.region = r.region WHERE o.id > 3;
SELECT o.id, r.region FROM orders o FULL JOIN geo.regions r ON o.region = r.region AND o.id > 20;
SELECT o.id, r.region FROM orders o FULL JOIN geo.regions r ON o.region = r.region AND o.id > 20 WHERE r.region = 'r1';
SELECT o.id, r.region FROM orders o FULL JOIN geo.regions r ON o.id = r.pop WHERE o.region = 'r1' OR r.region = 'r9';
SELECT * FROM orders o LEFT SEMI JOIN geo.regions r ON o.region = r.region AND r.pop = 1 WHERE o.id > 3;
SELECT * FROM orders o LEFT ANTI JOIN geo.regions r ON o.region = r.region WHERE o.id < 9; SELECT * FROM orders ANTI JOIN geo.regions USING (region);
SELECT o.id, r.region FROM orders o CROSS JOIN geo.regions r WHERE o.id = r.pop; SELECT o.id FROM orders o, geo.regions r WHERE o.region = r.region AND r.pop = 2;
SELECT a.id, b.id FROM orders a JOIN orders b ON a.id = b.id + 1 WHERE a.region = 'r1'; SELECT a.id FROM orders a JOIN orders b ON a.id = b.id JOIN orders c ON c.id = b.id WHERE c.id < 3;
SELECT a.id, b.region FROM orders a LEFT JOIN orders b ON a.id = b.id AND b.region = 'r1' WHERE a.id < 6;
SELECT /*+ BROADCAST(r) */ o.id FROM orders o JOIN geo.regions r ON o.region = r.region; SELECT /*+ MERGE(orders) */ pop FROM orders JOIN geo.regions USING (region);
SELECT /*+ REPARTITION(2) */ id FROM orders; SELECT o.id, n.name FROM orders o JOIN names n ON o.id = n.id; SELECT * FROM names;
SELECT o.id, x.n FROM orders o JOIN LATERAL (SELECT count(*) AS n FROM geo.regions r WHERE r.region = o.region) x WHERE o.id < 4;
SELECT id, tag FROM orders LATERAL VIEW explode(tags) e AS tag WHERE id < 6; SELECT id, pos, tag FROM orders LATERAL VIEW OUTER posexplode(tags) e AS pos, tag;
SELECT id, tag FROM orders, LATERAL explode(tags) AS e(tag) WHERE region = 'r2'; SELECT explode(tags) AS tag FROM orders WHERE id = 4;

-- subqueries and common table expressions
SELECT * FROM (SELECT id, region FROM orders WHERE id > 4) s WHERE region = 'r1'; SELECT (SELECT max(pop) FROM geo.regions) AS m FROM orders LIMIT 2;
SELECT * FROM orders WHERE region IN (SELECT region FROM geo.regions WHERE pop > 1); SELECT * FROM orders WHERE region NOT IN (SELECT region FROM geo.regions WHERE pop > 1);
SELECT * FROM orders o WHERE EXISTS (SELECT 1 FROM geo.regions r WHERE r.region = o.region AND r.pop = 1); SELECT * FROM orders o WHERE NOT EXISTS (SELECT 1 FROM geo.regions r WHERE r.region = o.region);
SELECT * FROM orders WHERE id = (SELECT max(id) FROM orders); SELECT * FROM orders o WHERE id > (SELECT avg(i.id) FROM orders i WHERE i.region = o.region);
SELECT id, (SELECT pop FROM geo.regions r WHERE r.region = o.region) AS pop FROM orders o; SELECT * FROM orders WHERE (id, region) IN (SELECT pop, region FROM geo.regions);
WITH t AS (SELECT * FROM orders WHERE region = 'r1') SELECT count(*) FROM t; WITH orders AS (SELECT 1 AS id) SELECT * FROM orders;
WITH orders AS (SELECT id FROM orders WHERE id < 3) SELECT * FROM orders; WITH a AS (SELECT id FROM orders), b AS (SELECT id FROM a WHERE id > 5) SELECT * FROM a JOIN b USING (id);
WITH one AS (SELECT 'r1' AS region) SELECT o.id, r.pop FROM orders o JOIN one USING (region) JOIN geo.regions r USING (region);
SELECT * FROM (WITH t AS (SELECT id FROM orders) SELECT max(id) AS m FROM t) WHERE m > 1; WITH t(a, b) AS (SELECT id, region FROM orders) SELECT a FROM t WHERE b = 'r0';
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4) SELECT i, o.region FROM n JOIN orders o ON o.id = n.i;

-- set operations
SELECT id FROM orders UNION SELECT pop FROM geo.regions; SELECT region FROM orders UNION ALL SELECT region FROM geo.regions;
SELECT region FROM orders INTERSECT SELECT region FROM geo.regions; SELECT region FROM geo.regions EXCEPT SELECT region FROM orders;
SELECT region FROM geo.regions MINUS SELECT region FROM orders WHERE region = 'r1'; (SELECT id FROM orders WHERE id < 3) UNION ALL (SELECT id FROM orders WHERE id > 27);
SELECT region FROM orders INTERSECT ALL SELECT region FROM orders; SELECT id FROM orders UNION ALL VALUES (100), (200); SELECT * FROM VALUES (1, 'a') AS v(x, y) JOIN orders ON x = id;

-- windows, order and limits
SELECT id, row_number() OVER (PARTITION BY region ORDER BY id) AS n FROM orders WHERE id > 3; SELECT id, sum(id) OVER (ORDER BY id ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS s FROM orders;
SELECT id, lag(id) OVER w AS p, lead(id, 2, -1) OVER w AS n FROM orders WINDOW w AS (PARTITION BY region ORDER BY id); SELECT id, rank() OVER (ORDER BY region) AS r, ntile(4) OVER (ORDER BY id) AS t FROM orders;
SELECT region, sum(sum(id)) OVER () AS total FROM orders GROUP BY region; SELECT * FROM (SELECT id, row_number() OVER (PARTITION BY region ORDER BY id DESC) AS n FROM orders) WHERE n = 1;
SELECT id FROM orders ORDER BY id DESC LIMIT 3; SELECT id FROM orders ORDER BY region NULLS LAST, id LIMIT 5 OFFSET 2; SELECT id, note FROM orders ORDER BY note NULLS FIRST, id LIMIT 4;
SELECT id FROM orders DISTRIBUTE BY region SORT BY id; SELECT id FROM orders CLUSTER BY id; SELECT id, price AS p FROM orders WHERE price > 3 ORDER BY p LIMIT 2;

-- pivots and pipes
SELECT * FROM (SELECT region, flag, id FROM orders) PIVOT (sum(id) FOR flag IN (true, false)); SELECT * FROM geo.regions UNPIVOT (value FOR name IN (pop, area));
FROM orders |> WHERE region = 'r1' |> SELECT id; FROM orders |> AGGREGATE count(*) AS n GROUP BY region |> WHERE n > 9; FROM orders |> LIMIT 30 |> WHERE id = 3 |> SELECT id
