package outboxui

import "fmt"

// doctorView is what the doctor found.
type doctorView struct {
	Findings []Finding
	None     bool // the service has given no doctor
	Commands []string
}

func doctor(v *visit, _ string) (*frame, error) {
	m := &doctorView{None: v.box.Doctor == nil, Commands: []string{commandOf("doctor")}}
	f := v.frame("doctor", "Doctor")
	f.Main = m
	if m.None {
		f.Verdict.Heading = "The doctor is a command: run it with the rights of the tables' owner."
		f.Verdict.Next = "It looks for what makes an outbox lose, delay or pile up events. `outbox ui` has it on " +
			"this page."
		return f, nil
	}
	all, err := v.box.Doctor(v.ctx())
	if err != nil {
		return nil, err
	}
	failures, warnings := 0, 0
	for _, level := range []string{"failure", "warning", "ok"} {
		for _, one := range all {
			if one.Level != level {
				continue
			}
			m.Findings = append(m.Findings, one)
			switch level {
			case "failure":
				failures++
			case "warning":
				warnings++
			}
		}
	}
	switch {
	case failures > 0:
		f.Verdict.Kind, f.Verdict.States = "bad", []state{{"down", plural(failures, "failure")}}
		f.Verdict.Heading = m.Findings[0].Found
		f.Verdict.Next = m.Findings[0].Fix
	case warnings > 0:
		f.Verdict.Kind, f.Verdict.States = "warn", []state{{"warn", plural(warnings, "warning")}}
		f.Verdict.Heading = m.Findings[0].Found
		f.Verdict.Next = m.Findings[0].Fix
	default:
		f.Verdict.Heading = fmt.Sprintf("All %s passed.", plural(len(all), "check"))
	}
	f.Title = f.Verdict.Heading
	return f, nil
}

// shape is the state of a finding.
func (f Finding) shape() state {
	switch f.Level {
	case "failure":
		return state{"down", "failure"}
	case "warning":
		return state{"warn", "warning"}
	}
	return state{"ok", "well"}
}
