DROP TABLE IF EXISTS {{program}};
