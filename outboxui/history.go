package outboxui

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// chartSpan is a range of the charts.
type chartSpan struct {
	name, title string
	whole       time.Duration
	bar         time.Duration // what a bar of failures stands for
}

var spans = []chartSpan{
	{"3h", "3 hours", 3 * time.Hour, core.HistorySlot},
	{"24h", "24 hours", 24 * time.Hour, 15 * time.Minute},
	{"7d", "7 days", core.HistoryKept, 2 * time.Hour},
}

// historyView are the charts of the overview.
type historyView struct {
	Title   string
	Ranges  []rangeLink
	Waiting chart
	Rate    chart
	Failed  chart
	Died    string
	Refused string
	Rows    []historyRow
	Every   string // what a row of the table stands for
	Layout  string // of its times
}

type rangeLink struct {
	Title, Href string
	Here        bool
}

type historyRow struct {
	At        time.Time
	Waiting   string
	PerMinute string
	Refused   int64
	Died      int64
}

// slots is a part of the history, in steps of core.HistorySlot.
type slots struct{ all []ops.HistoryPoint }

// readHistory reads the history of a topic, or of all topics. Nil: the outbox keeps none, or has none yet.
func (v *visit) readHistory(whole time.Duration, topic string) (*slots, error) {
	h, err := v.api().History(v.ctx(), ops.HistoryQuery{Since: whole, Topic: topic})
	switch {
	case errors.Is(err, core.ErrNoTables):
		return nil, nil //nolint:nilnil // see above
	case err != nil:
		return nil, err
	case !slices.ContainsFunc(h.Points, func(p ops.HistoryPoint) bool { return p.Kept }):
		return nil, nil //nolint:nilnil // see above
	}
	return &slots{h.Points}, nil
}

func (s *slots) from() time.Time { return s.all[0].At }

func (s *slots) whole() time.Duration { return time.Duration(len(s.all)) * core.HistorySlot }

// historyView makes the charts. Nil: the outbox keeps no history, or has none yet.
func (v *visit) historyView(trouble bool, waiting int64, down []downSpan) (*historyView, *slots, error) {
	at := 1 // a day, or 3 hours when something is wrong
	if trouble {
		at = 0
	}
	if i := slices.IndexFunc(spans, func(s chartSpan) bool { return s.name == v.form.Get("range") }); i >= 0 {
		at = i
	}
	span := spans[at]
	s, err := v.readHistory(span.whole, "")
	if err != nil || s == nil {
		return nil, nil, err
	}
	m := &historyView{Title: "The last " + span.title, Layout: "15:04"}
	for i, one := range spans {
		m.Ranges = append(m.Ranges, rangeLink{one.title, "?range=" + one.name, i == at})
	}
	m.charts(s, span.bar, waiting, down)
	m.rows(s, span.whole/12)
	return m, s, nil
}

// downSpan is a time in which a destination took no events.
type downSpan struct{ from, to time.Time }

func (m *historyView) charts(s *slots, bar time.Duration, waiting int64, down []downSpan) {
	const perMinute = float64(core.HistorySlot / time.Minute)
	per := max(1, len(s.all)/chartWidth)
	var backlog, rate []float64
	last := 0.0
	for part := range slices.Chunk(s.all, per) {
		most, sum := last, 0.0
		counted := false
		for _, e := range part {
			if e.Counted {
				if !counted {
					most, counted = 0, true
				}
				most = max(most, float64(e.Waiting))
				last = float64(e.Waiting)
			}
			sum += float64(e.Published)
		}
		backlog, rate = append(backlog, most), append(rate, sum/perMinute/float64(len(part)))
	}
	backlog[len(backlog)-1] = float64(waiting)
	if n := len(rate); n > 1 { // the last slot is not over
		rate[n-1] = rate[n-2]
	}
	shade := make([]box2, 0, len(down))
	for _, d := range down {
		shade = append(shade, s.box(d))
	}
	axis := s.axis()
	now := rate[len(rate)-1]
	m.Waiting = lineChart("Waiting", number(waiting)+" now", backlog, axis, shade,
		fmt.Sprintf("Waiting events over %s: at most %s, and %s now.", strings.TrimPrefix(m.Title, "The last "),
			number(int64(slices.Max(backlog))), number(waiting)))
	m.Rate = lineChart("Published per minute", number(int64(now))+" now", rate, axis, shade,
		fmt.Sprintf("Events published per minute over %s: at most %s, and %s in the last 5 minutes.",
			strings.TrimPrefix(m.Title, "The last "),
			number(int64(slices.Max(rate))), number(int64(now))))
	var died, refused []float64
	sumDied, sumRefused := int64(0), int64(0)
	for part := range slices.Chunk(s.all, int(bar/core.HistorySlot)) {
		d, r := int64(0), int64(0)
		for _, e := range part {
			d, r = d+e.Died, r+e.Refused
		}
		died, refused = append(died, float64(d)), append(refused, float64(r))
		sumDied, sumRefused = sumDied+d, sumRefused+r
	}
	m.Died, m.Refused = number(sumDied)+" died", number(sumRefused)+" refused"
	m.Failed = barChart("Failures per "+spanName(bar), died, refused, axis, shade,
		fmt.Sprintf("Failures over %s: %s, and %s.", strings.TrimPrefix(m.Title, "The last "), m.Refused, m.Died))
}

func spanName(d time.Duration) string {
	if d >= time.Hour {
		return fmt.Sprintf("%d hours", d/time.Hour)
	}
	return fmt.Sprintf("%d minutes", d/time.Minute)
}

// axis are the times below a chart.
func (s *slots) axis() (all []string) {
	layout := "15:04"
	if s.whole() > 48*time.Hour {
		layout = "2 Jan"
	}
	for i := range 4 {
		all = append(all, s.from().Add(s.whole()*time.Duration(i)/4).UTC().Format(layout))
	}
	return append(all, "now")
}

// box is where a time is in a chart.
func (s *slots) box(d downSpan) box2 {
	x := func(at time.Time) float64 {
		return max(0, min(chartWidth, float64(at.Sub(s.from()))/float64(s.whole())*chartWidth))
	}
	return box2{X: x(d.from), W: max(1, x(d.to)-x(d.from)), H: chartHeight}
}

// rows are the same in figures.
func (m *historyView) rows(s *slots, every time.Duration) {
	per := max(1, int(every/core.HistorySlot))
	m.Every = spanName(time.Duration(per) * core.HistorySlot)
	for part := range slices.Chunk(s.all, per) {
		r := historyRow{At: part[0].At, Waiting: "not known"}
		most, counted, published := int64(0), false, int64(0)
		for _, e := range part {
			if e.Counted {
				most, counted = max(most, e.Waiting), true
			}
			published += e.Published
			r.Refused, r.Died = r.Refused+e.Refused, r.Died+e.Died
		}
		if counted {
			r.Waiting = number(most)
		}
		r.PerMinute = number(float64(published) / (float64(len(part)) * core.HistorySlot.Minutes()))
		m.Rows = append(m.Rows, r)
	}
}

// perMinute is how many events were published in a minute of the last slot that is over, and an
// hour before it.
func (s *slots) perMinute() (now, before float64) {
	at := func(i int) float64 {
		if i < 0 {
			return 0
		}
		return float64(s.all[i].Published) / core.HistorySlot.Minutes()
	}
	last := len(s.all) - 2
	return at(last), at(last - int(time.Hour/core.HistorySlot))
}

// recent is how many events of a topic were published in a minute of the last slots.
func (v *visit) recent(topic string) (float64, bool) {
	s, err := v.readHistory(2*core.HistorySlot, topic)
	if err != nil || s == nil {
		return 0, err == nil
	}
	last := s.all[max(0, len(s.all)-2)] // the last one is not over
	return float64(last.Published) / core.HistorySlot.Minutes(), true
}

// deaths is the chart of a group: how many events of its topic died.
func (v *visit) deaths(topic string) (*chart, error) {
	span := spans[0]
	s, err := v.readHistory(span.whole, topic)
	if err != nil || s == nil {
		return nil, err
	}
	died, sum := make([]float64, len(s.all)), int64(0)
	for i, e := range s.all {
		died[i], sum = float64(e.Died), sum+e.Died
	}
	c := barChart("Died of "+cut(topic, 60)+" per "+spanName(span.bar), died, make([]float64, len(died)), s.axis(), nil,
		fmt.Sprintf("Events of %s that died over %s: %s.", cut(topic, 60), span.title, number(sum)))
	c.Now = number(sum) + " in " + span.title
	return &c, nil
}
