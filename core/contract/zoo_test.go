package contract_test

import (
	"reflect"
	"time"
)

func typeOf(v any) reflect.Type { return reflect.TypeOf(v) }

type (
	inner struct {
		A, B string
		C    string `json:"c"`
	}
	other struct {
		A string
		D int
	}
	winner struct {
		X string `json:"A"`
	}
	deep struct {
		inner
		E int `json:"e"`
	}
	Exported struct{ F, G int }
	named    struct {
		inner `json:"Inner"`
		H     int
	}
)

// zoo has structs whose fields hide each other in the ways of encoding/json.
var zoo = []any{
	inner{},
	struct {
		inner
		other
	}{}, // A hides A
	struct {
		inner
		winner
	}{}, // the tag wins
	struct {
		A int
		inner
	}{},
	struct {
		deep
		A bool `json:"B"`
	}{},
	struct {
		*Exported
		F string
	}{Exported: &Exported{}},
	struct {
		Exported `json:"x"`
		F        string
	}{},
	named{},
	struct {
		a int
		B int `json:"-"`
		C int `json:"-,"` //nolint:staticcheck // the name is -
		D time.Time
		E any    `json:",string"` //nolint:staticcheck // encoding/json takes no notice
		F string `json:"a b"`
	}{a: 1},
	struct {
		time.Duration
		P *int
	}{},
}
