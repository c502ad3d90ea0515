package orders

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/examples/quote-to-order/contract"
)

// captureRequest is the body of POST /commands/capture-order.
type captureRequest struct {
	EventID string                 `json:"event_id"`
	Quote   contract.QuoteAccepted `json:"quote"`
}

// captureOrder lets a person or a nightly job send the command beside the inbox. It cannot do harm:
// the command has its own key.
func (s *Service) captureOrder(w http.ResponseWriter, r *http.Request) {
	var request captureRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	result, replayed, err := s.Capture(r.Context(), r.Header.Get("X-Tenant"), request.EventID, request.Quote)
	switch {
	case errors.Is(err, once.ErrFingerprintMismatch): // the same event, with another document
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
	case errors.Is(err, once.ErrInvalidRequest):
		http.Error(w, err.Error(), http.StatusBadRequest)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		if replayed {
			w.Header().Set("Idempotency-Replayed", "true")
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(result)
	}
}
