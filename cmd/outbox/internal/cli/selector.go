package cli

import "errors"

// selector is a flag that selects what a command is about. It refuses an empty value: where a
// script writes --topic "$TOPIC" and the variable is not set, the command would be about
// everything.
type selector string

func (s *selector) Set(text string) error {
	if text == "" {
		return errors.New("it is empty; leave the flag out to select all")
	}
	*s = selector(text)
	return nil
}

func (s *selector) String() string { return string(*s) }

func (s *selector) Type() string { return "string" }
