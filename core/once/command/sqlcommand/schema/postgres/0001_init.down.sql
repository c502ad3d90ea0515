DROP TABLE IF EXISTS {{command}};
