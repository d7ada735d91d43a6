package job

import "slices"

// Follows says how many slots a role has for each legal size of an elastic role of its job.
type Follows struct {
	Role   string        `json:"role"` // the elastic one
	Counts []FollowCount `json:"counts"`
}

// FollowCount is the number of slots from a size of the other role on, up to the next one's.
type FollowCount struct {
	From     int `json:"from"`
	Replicas int `json:"replicas"`
}

// Add appends the number of slots at a size, which is larger than those before.
func (f *Follows) Add(size, replicas int) {
	if n := len(f.Counts); n == 0 || f.Counts[n-1].Replicas != replicas {
		f.Counts = append(f.Counts, FollowCount{size, replicas})
	}
}

// At returns the number of slots while the other role has size; below its smallest size, that of the smallest.
func (f *Follows) At(size int) int {
	i, found := slices.BinarySearchFunc(f.Counts, size, func(c FollowCount, size int) int { return c.From - size })
	if !found {
		i--
	}
	return f.Counts[max(i, 0)].Replicas
}

// Sizes are all numbers of slots that the role may have.
func (f *Follows) Sizes() Sizes {
	all := make([]int, len(f.Counts))
	for i, c := range f.Counts {
		all[i] = c.Replicas
	}
	slices.Sort(all)
	return Sizes{Min: all[0], Max: all[len(all)-1], List: slices.Compact(all)}
}

// Followers are the roles whose count follows that of a role.
func (j *Job) Followers(role string) []*Role {
	var all []*Role
	for i := range j.Roles {
		if f := j.Roles[i].Follows; f != nil && f.Role == role {
			all = append(all, &j.Roles[i])
		}
	}
	return all
}
