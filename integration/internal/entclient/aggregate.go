package entclient

// AggregateType names the aggregate of an order's events. This file is not generated.
func (*Order) AggregateType() string { return "order" }
