package core

// Warning is a danger, why it is one, and what to do.
type Warning struct{ Found, Cause, Fix string }
