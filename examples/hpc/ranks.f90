! SPDX-License-Identifier: MIT
!
! ranks DIR MEGABYTES: MPI ranks that open one file with status='unknown' at the same moment and write
! a slab each, then a log of their own with status='replace'; rank 0 looks at everything afterwards.
! Prints one line with the times.
!
! Compile with mpif90, run with mpirun. Exit: 0, or 1 with what was wrong.
program ranks
  use, intrinsic :: iso_fortran_env, only: int64, real64, error_unit
  use mpi
  implicit none
  integer, parameter :: block = 131072 ! numbers in a MiB
  character(len=512) :: dir, word
  character(len=600) :: path
  integer :: rank, size, error, megabytes, u, ios, i, r, bad, all_bad
  real(real64), allocatable :: slab(:)
  real(real64) :: began, opened, written
  integer(int64) :: bytes

  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, size, error)
  call get_command_argument(1, dir)
  call get_command_argument(2, word)
  read (word, *) megabytes
  allocate (slab(block))
  bad = 0

  call MPI_Barrier(MPI_COMM_WORLD, error)
  began = MPI_Wtime()
  open (newunit=u, file=trim(dir)//'/slabs', status='unknown', access='stream', form='unformatted', &
        action='readwrite', iostat=ios)
  if (ios /= 0) call MPI_Abort(MPI_COMM_WORLD, 1, error)
  call MPI_Barrier(MPI_COMM_WORLD, error)
  opened = MPI_Wtime() - began
  do i = 0, megabytes - 1
    slab = real(rank * 1000 + i, real64)
    write (u, pos=8_int64 * block * (int(rank, int64) * megabytes + i) + 1, iostat=ios) slab
    if (ios /= 0) bad = bad + 1
  end do
  close (u, iostat=ios)
  if (ios /= 0) bad = bad + 1
  call MPI_Barrier(MPI_COMM_WORLD, error)
  written = MPI_Wtime() - began

  do i = 1, 20
    write (path, '(a,i0)') trim(dir)//'/log.', rank
    open (newunit=u, file=trim(path), status='replace', action='write', iostat=ios)
    if (ios /= 0) bad = bad + 1
    write (u, '(a,i0)') 'step ', i
    close (u)
  end do
  call MPI_Barrier(MPI_COMM_WORLD, error)

  if (rank == 0) then
    inquire (file=trim(dir)//'/slabs', size=bytes)
    if (bytes /= 8_int64 * block * megabytes * size) bad = bad + 1
    open (newunit=u, file=trim(dir)//'/slabs', status='old', access='stream', form='unformatted', &
          action='read', iostat=ios)
    do r = 0, size - 1
      do i = 0, megabytes - 1
        read (u, pos=8_int64 * block * (int(r, int64) * megabytes + i) + 1, iostat=ios) slab
        if (ios /= 0 .or. any(slab /= real(r * 1000 + i, real64))) bad = bad + 1
      end do
      write (path, '(a,i0)') trim(dir)//'/log.', r
      inquire (file=trim(path), size=bytes)
      if (bytes /= 8) bad = bad + 1
    end do
    close (u)
  end if
  call MPI_Reduce(bad, all_bad, 1, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, error)
  if (rank == 0) then
    write (*, '(i0,a,f0.1,a,f0.1,a)') size, ' ranks: open until all have it ', opened * 1000, &
      ' ms, written ', written * 1000, ' ms'
    if (all_bad /= 0) write (error_unit, '(i0,a)') all_bad, ' things are not what was written'
  end if
  call MPI_Bcast(all_bad, 1, MPI_INTEGER, 0, MPI_COMM_WORLD, error)
  call MPI_Finalize(error)
  if (all_bad /= 0) stop 1
end program
