DROP TABLE IF EXISTS {{inbox_key}};
DROP TABLE IF EXISTS {{inbox}};
