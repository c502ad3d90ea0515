DROP TABLE IF EXISTS {{name:inbox_consumer}};
