"""Groups of this project's consumers while their coordinators are killed. Begin with `rounds`."""
