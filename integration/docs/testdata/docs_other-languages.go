package page

type OrderPlaced struct{}

const orderPlacedSchema = ""
