package core

// Warning is a danger, its cause and the remedy.
type Warning struct{ Found, Cause, Fix string }
