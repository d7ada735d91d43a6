package elastic

// Code is the reason of a refusal, and the code of an ErrorReply.
type Code string

const (
	Malformed        Code = "malformed"
	Unauthorized     Code = "unauthorized"
	NoSuchJob        Code = "no_such_job"
	NoSuchSlot       Code = "no_such_slot"
	NoSuchPath       Code = "no_such_path"
	MethodNotAllowed Code = "method_not_allowed"
	RegisterFirst    Code = "register_first"
	Fenced           Code = "fenced"
	TooLarge         Code = "too_large"
	NotReady         Code = "not_ready"
)

// Error is a refusal. Rendezvous and Coordinator return it, Server sends it, and Client returns it, so errors.Is(err,
// ErrFenced) means the same on both sides.
type Error struct {
	Code    Code
	Message string
}

func (e *Error) Error() string {
	if e.Message == "" {
		return string(e.Code)
	}
	return e.Message
}

// Is matches the errors below by their code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Message == "" && t.Code == e.Code
}

// The refusals that a caller of Client must distinguish, and what to do about them.
var (
	// ErrUnauthorized: the token is not the job's, or the job is unknown. Read the token file again.
	ErrUnauthorized = &Error{Code: Unauthorized}
	// ErrNoSuchJob: the job has another UID, so the member does not belong to it: exit.
	ErrNoSuchJob = &Error{Code: NoSuchJob}
	// ErrNoSuchSlot: the slot is no longer wanted: exit.
	ErrNoSuchSlot = &Error{Code: NoSuchSlot}
	// ErrRegisterFirst: this master does not know the member yet, or its lease expired: register again.
	ErrRegisterFirst = &Error{Code: RegisterFirst}
	// ErrFenced: a newer incarnation has the slot, or this one is considered ended: stop and exit.
	ErrFenced = &Error{Code: Fenced}
	// ErrNotReady: the master does not know the desired state yet: retry soon.
	ErrNotReady = &Error{Code: NotReady}
)
