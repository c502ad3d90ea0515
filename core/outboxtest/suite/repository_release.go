package suite

import (
	"errors"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

func releaseCases() []repositoryCase {
	return []repositoryCase{{"a release is audited", releaseAudited}}
}

// The row of the event may have been deleted long ago, or be in another outbox.
func releaseAudited(f *fixture) {
	event := core.NewEventID()
	id, err := core.NewRowID(event, "orders")
	f.check(err)
	for _, r := range []core.AuditRecord{
		{RowID: id, EventID: event}, {EventID: strings.Repeat("ö", 255)}, // as CloudEvents may have
	} {
		r.Action, r.Actor, r.Reason, r.Topic = ops.AuditRelease, "ada", "repaired", "orders"
		f.check(f.Store.RecordAudit(f.Context(), "- 1\n+ 2\n", r))
		list := f.audit(core.AuditQuery{Limit: 1})
		f.must(len(list) == 1, "audit %+v", list)
		got := list[0]
		got.No, got.At = 0, r.At
		f.must(got == r, "audit %+v, want %+v", got, r)
	}
	of, err := f.Store.ReadAudit(f.Context(), id)
	f.must(err == nil && len(of) == 1 && of[0].Action == ops.AuditRelease && of[0].Detail == "- 1\n+ 2\n",
		"audit %+v %v", of, err)
	before := f.Audits(f)
	err = f.Store.RecordAudit(f.Context(), "", core.AuditRecord{Actor: "ada"})
	f.must(errors.Is(err, core.ErrInvalidRequest), "%v", err)
	f.audited(before)
}
