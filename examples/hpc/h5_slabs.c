/* SPDX-License-Identifier: MIT */
/*
 * h5_slabs FILE MEGABYTES: MPI ranks that write one dataset of one HDF5 file together, a slab each,
 * by MPI-IO, and read back their neighbour's. Prints one line with the times.
 *
 * Compile with h5pcc (parallel HDF5), run with mpirun. Exit: 0, or 1 with what was wrong.
 */
#include <hdf5.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define NUMBERS 131072 /* in a MiB */

static void must(long long ok, const char *what)
{
    if (ok >= 0)
        return;
    fprintf(stderr, "h5_slabs: %s failed\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static double value_of(int rank, hsize_t i)
{
    return rank * 1000.0 + (double)(i / NUMBERS);
}

int main(int argc, char **argv)
{
    int rank, size, bad = 0, all_bad = 0;
    hid_t access, file, space, set, memory, transfer;
    hsize_t count, whole, start;
    double began, opened, *slab;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 3)
        MPI_Abort(MPI_COMM_WORLD, 2);
    count = (hsize_t)atoi(argv[2]) * NUMBERS;
    whole = count * (hsize_t)size;
    slab = malloc(count * sizeof *slab);
    for (hsize_t i = 0; i < count; i++)
        slab[i] = value_of(rank, i);

    MPI_Barrier(MPI_COMM_WORLD);
    began = MPI_Wtime();
    access = H5Pcreate(H5P_FILE_ACCESS);
    must(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL), "MPI-IO");
    file = H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, access);
    must(file, "creating the file");
    opened = MPI_Wtime() - began;
    space = H5Screate_simple(1, &whole, NULL);
    set =
        H5Dcreate2(file, "slabs", H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    must(set, "creating the dataset");
    memory = H5Screate_simple(1, &count, NULL);
    start = count * (hsize_t)rank;
    H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, NULL, &count, NULL);
    transfer = H5Pcreate(H5P_DATASET_XFER);
    H5Pset_dxpl_mpio(transfer, H5FD_MPIO_INDEPENDENT);
    must(H5Dwrite(set, H5T_NATIVE_DOUBLE, memory, space, transfer, slab), "writing");
    must(H5Fflush(file, H5F_SCOPE_GLOBAL), "flushing");
    MPI_Barrier(MPI_COMM_WORLD);

    start = count * (hsize_t)((rank + 1) % size);
    H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, NULL, &count, NULL);
    must(H5Dread(set, H5T_NATIVE_DOUBLE, memory, space, transfer, slab), "reading");
    for (hsize_t i = 0; i < count; i++)
        bad += slab[i] != value_of((rank + 1) % size, i);
    H5Dclose(set);
    must(H5Fclose(file), "closing");
    MPI_Reduce(&bad, &all_bad, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d ranks: create %.1f ms, all %.1f ms\n", size, opened * 1000,
               (MPI_Wtime() - began) * 1000);
    if (rank == 0 && all_bad != 0)
        fprintf(stderr, "h5_slabs: %d numbers are not what was written\n", all_bad);
    MPI_Bcast(&all_bad, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Finalize();
    return all_bad != 0;
}
