package contractoutbox_test

import (
	"encoding/json"
	"math/big"
	"net/netip"
	"time"

	"github.com/ormoutbox/ormoutbox/core/contract"
)

type placed1 struct {
	ID    string `json:"id" contract:"aggregate"`
	Euros int    `json:"euros"`
}

type placed2 struct {
	OrderID  string            `json:"order_id" contract:"aggregate" doc:"the order's number"`
	Customer customer          `json:"customer"`
	Status   string            `json:"status" enum:"new,vip" doc:"new | vip"`
	Cents    int64             `json:"cents" minimum:"0" maximum:"1000000"`
	Lines    []line            `json:"lines" doc:"what was ordered"`
	Labels   map[string]string `json:"labels,omitempty"`
	At       time.Time         `json:"at"`
	Note     *string           `json:"note"`
	Tags     []string          `json:"tags,omitempty" maxLength:"10" pattern:"^[a-z]+$"`
}

type customer struct {
	Name  string `json:"name" contract:"pii"`
	Email string `json:"email,omitempty" contract:"pii" format:"email" doc:"where to write"`
}

type line struct {
	SKU   string `json:"sku" minLength:"1"`
	Count uint16 `json:"count"`
}

var note = "ring twice"

func placed() contract.Spec[placed2] {
	return contract.Spec[placed2]{
		Type: "order.placed", Version: 2, Owner: "team orders", Domain: "sales", Topic: "orders",
		AggregateType: "order",
		Description:   "A customer has placed an order, and has not paid it yet.",
		Notes:         "A consumer may see `order.cancelled` of the same order later.",
		Example: placed2{
			OrderID: "o-7", Customer: customer{Name: "Ada", Email: "ada@example.com"}, Status: "new", Cents: 4200,
			Lines: []line{{"book", 2}}, At: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), Note: &note,
			Tags: []string{"a"},
		},
		Older: []contract.Older{contract.From(1, placed1{"o-7", 42}, func(p placed1) (placed2, error) {
			return placed2{OrderID: p.ID, Status: "new", Cents: int64(p.Euros) * 100}, nil
		})},
	}
}

type cancelled1 struct {
	OrderID string `json:"order_id" contract:"aggregate,key"`
	Reason  string `json:"reason,omitempty"`
}

func cancelled() contract.Spec[cancelled1] {
	return contract.Spec[cancelled1]{
		Type: "order.cancelled", Owner: "team orders", Domain: "sales", Topic: "orders", AggregateType: "order",
		Description: "The customer has cancelled an order.", Deprecated: "`order.closed` says why, too.",
		Example: cancelled1{"o-7", "too late"},
	}
}

type audited1 struct{}

func catalog() *contract.Catalog {
	return contract.Must(contract.NewCatalog(
		contract.Must(contract.Define(placed())), contract.Must(contract.Define(cancelled())),
		contract.Must(contract.Define(contract.Spec[audited1]{
			Type: "audit/done", Owner: "team audit", Description: "An audit has ended <ok> & all.",
			AggregateType: "audit/one",
		})),
	))
}

// zoo has every kind of field.
type zoo struct {
	embedded
	*Optional
	Bool   bool
	I8     int8
	I      int
	U32    uint32
	U64    uint64
	F      float32
	Text   string
	Bytes  []byte
	Raw    json.RawMessage
	Number json.Number
	Big    big.Int
	Addr   netip.Addr
	Any    any
	Array  [2]int8
	List   []*element
	Map    map[int]map[string][]bool
	Ptr    **int
	Quoted int64      `json:",string"`
	QPtr   *bool      `json:",string"`
	Zero   time.Time  `json:"zero,omitzero"`
	Left   *time.Time `json:"left,omitempty"`
	Enum   *int       `enum:"1,2"`
	Enums  []string   `enum:"a,b"`
	hidden int
	No     string `json:"-"`
}

type embedded struct{ Inner string }

type element struct {
	SKU   string
	Count *uint16
}

// Optional is embedded by a pointer.
type Optional struct{ Perhaps []int }
