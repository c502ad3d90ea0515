DROP TABLE IF EXISTS {{program}};
DROP TABLE IF EXISTS {{command}};
