package inbox

// OccurredAt is what Info.OccurredAt has.
var OccurredAt = occurredAt
